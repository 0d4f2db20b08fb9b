"""Settings for tests and examples."""

import signal

pytest_plugins = ["penstock.testing.servers.fixtures"]

# A shell makes what it starts in the background deaf to Ctrl-C, and so are the commands that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
