"""Advertisements: which impressions were clicked within ten minutes, and the click-through rate of each ad, hour by hour."""

from penstock import Flow, Tumbling, agg

flow = Flow("impressions_clicks")

when = {"time": "at", "lateness": "5 seconds", "delay": "5 seconds"}  # with delay= time goes on though nothing arrives
impressions = flow.stream("impressions", "impression long, ad string, at timestamp", **when)
clicks = flow.stream("clicks", "impression long, user string, at timestamp", **when)
ten_minutes = ("0 seconds", "10 minutes")  # a click comes after its impression

impressions.join(clicks, on="impression", within=ten_minutes, how="left").view("outcomes")

# However often an impression was clicked, it counts once.
clicked = impressions.join(clicks, on="impression", within=ten_minutes, how="semi", name="clicked").with_columns(hit="true")
ignored = impressions.join(clicks, on="impression", within=ten_minutes, how="anti", name="ignored").with_columns(hit="false")
every = clicked.union(ignored, name="every")
every.window(Tumbling("1 hour"), by="ad").agg(shown=agg.count(), rate=agg.ratio("hit")).view("click_through_rate")
