"""Pure operators on Arrow: judging, windows, joins. No Spark, no files, no clock."""
