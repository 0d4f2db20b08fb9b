"""What people take out of their carts again: a view that the state of the carts cannot give."""

from cart import EVENTS, ItemRemoved

from penstock import Flow, agg
from penstock.events import stream_of

flow = Flow("carts")
removed = stream_of(flow, "carts", EVENTS, ItemRemoved)
removed.group_by("item").agg(times=agg.count(), last=agg.max("at")).view("removed")
