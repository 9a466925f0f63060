"""The engine on Spark. Only this folder and `tblctl.spark` know pyspark."""
