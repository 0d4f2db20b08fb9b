"""Page views of a web site: how often each page is looked at, minute by minute."""

from penstock import Flow, Tumbling, agg

flow = Flow("pageviews")

events = flow.stream(
    "events",
    "timestamp timestamp, user_id long, event_type string, page string, session_id string",
    time="timestamp",
    lateness="30 seconds",
)
views = events.where("event_type = 'page_view'", name="page_views")
per_page = views.window(Tumbling("1 minute"), by="page").agg(views=agg.count())
per_page.view("views_per_minute")
per_page.late.view("late_views")
