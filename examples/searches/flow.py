"""Searches and clicks of each user: what was found, and which searches led nowhere."""

from penstock import Flow

flow = Flow("searches")

searches = flow.stream("searches", "user long, query string, results long, at timestamp", time="at", lateness="10 seconds")
clicks = flow.stream("clicks", "user long, url string, rank long, at timestamp", time="at", lateness="10 seconds")

# A click belongs to a search of the same user in the five minutes before it that had so many results.
meant = {"on": "user", "within": ("0 seconds", "5 minutes"), "where": "rank <= results"}
searches.join(clicks, **meant, name="pairs").select("user", "query", "url", "at", clicked="clicks_at").view("found")
searches.join(clicks, **meant, how="anti", name="in_vain").view("in_vain")
