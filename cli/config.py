"""The settings of a user: a file of profiles, and environment variables. Flags go before both.

    profile = "prod"                            # the one that is used where none is named

    [profiles.prod]
    engine = "auto"
    master = "spark://host:7077"
    price_per_gib = 0.02

    [profiles.prod.storage.s3]                  # for locations s3://..
    endpoint_url = "https://storage.example"
    key = { env = "STORAGE_KEY" }
    secret = { file = "/run/secrets/storage" }

    [profiles.prod.catalogs.lake]               # for locations iceberg://lake/..
    uri = "https://catalog.example"
    token = { env = "CATALOG_TOKEN" }

A secret is never written there: the file says where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

SETTINGS: dict[str, type] = {
    "engine": str,
    "master": str,
    "price_per_gib": float,
    "price_per_hour": float,
    "color": str,
    "log_level": str,
}
"""What a profile or a variable `TBLCTL_..` gives in place of a flag, and its type."""

_OF_GROUP = ("color", "log_level")
_PARTS = ("storage", "catalogs")
_META = "tblctl.profile"
_TYPED = "tblctl.typed"
_BLOT = "***"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The settings that hold for a call.

    Attributes:
        name: of the profile; None where none is used.
        names: of all profiles of the file.
        file: where profiles are looked for, and whether it is there.
        settings: name to value, as a flag takes it.
        origins: where each setting is from.
        storage: by the scheme of locations, options of fsspec; secrets are references.
        catalogs: by name, properties of Iceberg catalogs; secrets are references.
    """

    name: str | None
    names: tuple[str, ...]
    file: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    catalogs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def defaults(self, commands: Sequence[str]) -> dict[str, Any]:
        """Return click's `default_map`: of the group, and of each command."""
        of_group: dict[str, Any] = {name: value for name, value in self.settings.items() if name in _OF_GROUP}
        of_command = {name: value for name, value in self.settings.items() if name not in _OF_GROUP}
        return {**of_group, **dict.fromkeys(commands, of_command)}


def config_file(environment: Mapping[str, str]) -> Path:
    """Return where the file is: `TBLCTL_CONFIG`, or by the XDG Base Directory Specification."""
    if named := environment.get("TBLCTL_CONFIG"):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tblctl.toml"


def read_profile(words: Sequence[str], environment: Mapping[str, str]) -> Profile:
    """Return the settings for a call: those of the profile that `--profile` or `TBLCTL_PROFILE` names, or the file.

    Raises:
        ClickException: the file cannot be read; or lists all its problems. It shows no value.
    """
    file = config_file(environment)
    content = _content(file, needed="TBLCTL_CONFIG" in environment)
    profiles = content.get("profiles", {})
    try:
        problems = list(_problems(content))
    except RecursionError:
        problems = ["it is nested too deeply"]
    if problems:
        raise click.ClickException(f"{file}: {'; '.join(problems)}")
    name = _named(words) or environment.get("TBLCTL_PROFILE") or content.get("profile")
    if name is not None and name not in profiles:
        known = f"there are {', '.join(profiles)}" if profiles else "there is none"
        raise click.ClickException(f"there is no profile {name!r} in {file}: {known}")
    chosen = profiles.get(name, {})
    settings = {key: value for key, value in chosen.items() if key in SETTINGS}
    origins = dict.fromkeys(settings, f"profile {name}")
    for key in SETTINGS:
        variable = f"TBLCTL_{key.upper()}"
        if environment.get(variable):
            settings[key], origins[key] = environment[variable], variable
    return Profile(
        name=name,
        names=tuple(profiles),
        file=file,
        settings=settings,
        origins=origins,
        **{part: chosen.get(part, {}) for part in _PARTS},
    )


def _named(words: Sequence[str]) -> str | None:
    """Return what --profile names, which is needed before the words are parsed."""
    for place, word in enumerate(words):
        if word.startswith("--profile="):
            return word.partition("=")[2]
        if word == "--profile" and place + 1 < len(words):
            return words[place + 1]
    return None


def _content(file: Path, *, needed: bool) -> dict[str, Any]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        if needed:
            raise click.ClickException(f"{file}, which TBLCTL_CONFIG names, is missing") from None
        return {}
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    import tomllib

    try:
        return tomllib.loads(text.decode())
    except RecursionError:
        raise click.ClickException(f"{file} is not TOML: it is nested too deeply") from None
    except ValueError as error:
        place = str(error).rpartition("(")[2].rstrip(")") if "(at " in str(error) else "a number is too long"
        if isinstance(error, UnicodeDecodeError):
            place = "it is not text in UTF-8"
        raise click.ClickException(f"{file} is not TOML: {place}") from None  # the text may hold a secret


def _problems(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong, by its place in the file."""
    for key in content.keys() - {"profile", "profiles"}:
        yield f"{key}: expected profile or profiles"
    if not isinstance(content.get("profile", ""), str):
        yield "profile: expected a text"
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        yield "profiles: expected tables [profiles.NAME]"
        return
    for name, profile in profiles.items():
        if not isinstance(profile, dict):
            yield f"profiles.{name}: expected a table"
            continue
        for key, value in profile.items():
            yield from _setting_problems(f"profiles.{name}.{key}", key, value)


def _setting_problems(place: str, key: str, value: Any) -> Iterator[str]:
    if key in _PARTS:
        if not (isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())):
            yield f"{place}: expected tables [{place}.NAME]"
            return
        for name, options in value.items():
            yield from _secret_problems(f"{place}.{name}", options)
    elif key not in SETTINGS:
        yield f"{place}: expected one of {', '.join((*SETTINGS, *_PARTS))}"
    elif isinstance(value, bool) or not isinstance(value, (int, float) if SETTINGS[key] is float else str):
        yield f"{place}: expected {'a number' if SETTINGS[key] is float else 'a text'}"


def _secret_problems(place: str, options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if _is_reference(value):
            continue
        if isinstance(value, dict):
            yield from _secret_problems(f"{place}.{name}", value)
        elif _is_secret(name, value):
            yield f'{place}.{name}: name where a secret is: {{ env = "NAME" }} or {{ file = "PATH" }}'


def _is_secret(name: str, value: Any) -> bool:
    from tblctl.storage_text import has_secret_part, is_secret_option

    if isinstance(value, str) and has_secret_part(value):
        return True
    return is_secret_option(name) and not name.lower().endswith(("uri", "url"))


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= {"env", "file"}


def resolved(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return options with the secrets that they refer to.

    Raises:
        ClickException: a secret is not there.
    """
    return {name: _value(name, value, environment) for name, value in options.items()}


def _value(name: str, value: Any, environment: Mapping[str, str]) -> Any:
    if not isinstance(value, dict):
        return value
    if not _is_reference(value):
        return resolved(value, environment)
    if "env" in value:
        if value["env"] not in environment:
            raise click.ClickException(f"{name}: the environment has no {value['env']}")
        return environment[value["env"]]
    try:
        return Path(value["file"]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{name}: {value['file']} cannot be read: {error}") from error


def blotted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options to be shown: references as text, no secrets, also none in URLs."""
    from tblctl.storage_text import without_credentials

    found: dict[str, Any] = {}
    for name, value in options.items():
        if _is_reference(value):
            ((kind, where),) = value.items()
            found[name] = f"{kind}:{where}"
        elif isinstance(value, dict):
            found[name] = blotted(value)
        elif _is_secret(name, value):
            found[name] = _BLOT
        else:
            found[name] = without_credentials(value) if isinstance(value, str) else value
    return found


def remember(ctx: click.Context, profile: Profile) -> None:
    """Keep the settings of a call with its context."""
    ctx.meta[_META] = profile


def current() -> Profile | None:
    """Return the settings of the running call."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(_META)


def add_to(params: dict[str, Any]) -> None:
    """Add a profile's options of storage and catalogs to the parsed words of a command. What was typed goes before."""
    profile = current()
    if {"sources", "files"} & params.keys() and "storage_options" in params:
        click.get_current_context().meta[_TYPED] = dict(params["storage_options"] or {})
    if profile is None or not (profile.storage or profile.catalogs):
        return
    places = [
        str(item)
        for item in (params.get("location"), params.get("below"), *params.get("locations", ()))
        if item
    ]
    if "statement" in params:
        import tblctl

        places.append(tblctl.parse_statement(params["statement"]).location)
    for place in places:
        scheme, _, rest = place.partition("://")
        for name, options in (
            ("storage_options", _storage_of(profile, place)),
            (
                "catalog_options",
                profile.catalogs.get(rest.partition("/")[0]) if scheme == "iceberg" else None,
            ),
        ):
            if options and name in params:
                params[name] = {**resolved(options, os.environ), **(params[name] or {})}


def source_options(place: str) -> dict[str, Any]:
    """Return the options for files at a place: the profile's for its scheme, and what was typed."""
    profile, typed = current(), click.get_current_context().meta.get(_TYPED, {})
    return {**resolved(_storage_of(profile, place) if profile else {}, os.environ), **typed}


def _storage_of(profile: Profile, place: str) -> Mapping[str, Any]:
    """Return a profile's options for a location, by its scheme, under this or another of its names."""
    from tblctl.storage_text import scheme_of

    scheme = place.partition("://")[0]
    if scheme in profile.storage:
        return profile.storage[scheme]
    alike = (
        options for name, options in profile.storage.items() if scheme_of(f"{name}://") == scheme_of(place)
    )
    return next(alike, {})
