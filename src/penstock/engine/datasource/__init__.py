"""Topics for any Spark job: format("penstock"), and Spark streams into topics."""
