"""An output of a flow, computed again on the side: from the log and the flow's own marks, up to one of its decisions."""
