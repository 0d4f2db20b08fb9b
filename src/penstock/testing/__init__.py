"""Driver with controlled time, crash points, contract suites: what users test their flows with."""
