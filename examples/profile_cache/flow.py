"""A cache of user profiles, kept current from the changes of a database; and a table rebuilt from a changelog."""

from penstock import Flow

PROFILE = "user_id long, name string, city string"

flow = Flow("profile_cache")
profiles = flow.table("users_cdc", PROFILE, key="user_id", changes="debezium")
profiles.view("profile_cache")
profiles.where("city = 'Berlin'").to("berliners")  # a changelog: who leaves Berlin is deleted from it

rebuilt = Flow("rebuilt")
rebuilt.table("berliners", PROFILE, key="user_id").view("berliners")
