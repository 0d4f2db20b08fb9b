"""What is served: rows, by key, history, as-of queries."""

from penstock.views.together import Together as Together
from penstock.views.together import read_together as read_together
