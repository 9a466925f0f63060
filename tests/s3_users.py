"""Users of a MinIO server, each with one of the policies of docs/s3-policies for one table."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from minio import MinioAdmin
from minio.credentials import StaticProvider
from servers import S3Server

POLICIES = Path(__file__).parents[1] / "docs" / "s3-policies"
ROLES = ("reader", "writer", "maintainer")


class Users:
    """A user of each role for the table at `path` of the server's bucket."""

    def __init__(self, server: S3Server, path: str) -> None:
        self._server, self._mark = server, uuid.uuid4().hex[:12]
        credentials = StaticProvider(server.key, server.secret)
        self._admin = MinioAdmin(
            endpoint=f"{server.host}:{server.port}", credentials=credentials, secure=False
        )
        for role in ROLES:
            text = (POLICIES / f"{role}.json").read_text(encoding="utf-8")
            name, secret = self.credentials(role)
            self._admin.policy_add(
                name, policy=json.loads(text.replace("BUCKET", server.bucket).replace("TABLE", path))
            )
            self._admin.user_add(name, secret)
            self._admin.policy_set(name, user=name)

    def credentials(self, role: str) -> tuple[str, str]:
        """Return a user's key and secret."""
        return f"{role}-{self._mark}", f"password-of-{role}"

    def options(self, role: str | None) -> dict[str, Any]:
        """Return the options of a storage for a role; without one those of the server's owner."""
        found = self._server.storage_options
        if role is None:
            return found
        key, secret = self.credentials(role)
        return found | {"key": key, "secret": secret}

    def end(self) -> None:
        for role in ROLES:
            name, _ = self.credentials(role)
            self._admin.user_remove(name)
            self._admin.policy_remove(name)
