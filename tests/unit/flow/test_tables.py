"""Tables as they are described: what names their rows, who may look things up in them, and what is refused."""

from datetime import timedelta

import pytest

from penstock import plan
from penstock.flow.graph import FlowGraph
from penstock.flow.steps.aggregates import agg
from penstock.flow.topics import TopicFacts

USERS = "user_id long, name string, country string, at timestamp"


@pytest.fixture
def users(shop):
    return shop.flow.table("users", USERS, key="user_id", time="at")


def test_a_table_is_a_source_of_versions_and_the_current_row_of_each_key(shop, users):
    users.view("current_users")
    checked = shop.plan()
    source, current = checked.steps
    assert source.node.versions == plan.Versions(("user_id",))
    assert (source.name, source.updating, source.node.lateness) == ("users", False, None)
    assert (current.name, current.inputs, current.updating) == ("users.table", ("users",), True)
    assert current.node == plan.Latest(("user_id",))
    assert checked.outputs[0].key == ("user_id",)


def test_only_what_is_read_of_a_table_is_in_the_plan(shop, users):
    shop.orders.enrich(users, on="user_id").view("enriched")
    assert [s.name for s in shop.plan().steps] == ["orders", "users", "enriched"]


def test_without_a_time_versions_are_ordered_as_the_log_took_them(shop):
    shop.flow.table("users", USERS, key="user_id").view("current")
    assert shop.plan().step("users").node.append


def test_envelopes_with_a_time_of_their_own_are_ordered_by_their_place_in_the_database(shop):
    shop.flow.table("users", USERS, key="user_id", time="at", changes="debezium").view("current")
    assert shop.plan().step("users.table").node == plan.Latest(("user_id",), by_position=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": ()}, "cannot tell the rows of users apart: no key"),
        ({"key": "id"}, "cannot tell the rows of users apart: there is no column 'id'"),
        ({"key": "user_id", "time": "name"}, "cannot take the time of users from 'name': it is string, not timestamp"),
        ({"key": "user_id", "op": "at"}, "cannot tell from 'at' what becomes of a row: it is timestamp, not string"),
    ],
)
def test_a_table_that_cannot_be_is_refused(shop, refused, given, said):
    shop.flow.table("users", USERS, **given).view("current")
    assert refused().startswith(said)


def test_changes_of_an_unknown_form_are_refused_where_they_are_written(shop, message):
    said = message(lambda: shop.flow.table("users", USERS, key="user_id", changes="avro"))
    assert said.startswith("changes='avro' is not known")
    assert 'hint: use "rows" or "debezium"' in said


def test_a_static_table_is_called_as_its_file_and_is_not_looked_at(shop):
    countries = shop.flow.static("no/such/countries.csv", "country string, vat double", key="country")
    countries.view("vat")
    step = shop.plan().step("countries")
    assert step.node.versions.static == plan.Static("no/such/countries.csv")


def test_rows_written_in_the_flow_stand_in_the_order_of_the_columns(shop):
    rows = [{"vat": 0.19, "country": "DE"}, {"country": "FR"}]
    shop.flow.static(rows, "country string, vat double", key="country", name="countries").view("vat")
    assert shop.plan().step("countries").node.versions.static == plan.Static(None, (("DE", 0.19), ("FR", None)), ("country", "vat"))


def test_the_latest_of_a_stream_is_a_table_that_can_be_looked_up(shop):
    newest = shop.payments.latest(by="order_id")
    shop.orders.enrich(newest, on="order_id").view("enriched")
    shop.payments.latest(by="order_id", order="paid", name="dearest").view("dearest")
    checked = shop.plan()
    assert checked.step("enriched").inputs == ("orders", "payments")
    assert checked.step("dearest").node == plan.Latest(("order_id",), "paid")


class TestEnrich:
    def test_gives_the_columns_of_both_the_key_once(self, shop, users):
        shop.orders.enrich(users, on="user_id", version=True).view("enriched")
        step = shop.plan().step("enriched")
        assert step.schema.names[-5:] == ["name", "country", "users_at", "version_time", "version_offset"]
        assert step.node.right == (("name", "name"), ("country", "country"), ("users_at", "at"))
        assert (step.node.history, step.updating) == (timedelta(days=7), False)

    def test_columns_of_another_name_are_matched_by_their_place(self, shop, users):
        shop.orders.select("order_id", customer="user_id").enrich(users, on="customer").view("enriched")
        step = shop.plan().step("enriched")
        assert (step.node.on, step.node.key) == (("customer",), ("user_id",))
        assert step.schema.names == ["order_id", "customer", "name", "country", "at"]

    def test_a_narrowed_table_is_looked_up_as_it_was_narrowed(self, shop, users):
        german = users.where("country = 'DE'").select("user_id", who="name")
        shop.orders.enrich(german, on="user_id").view("enriched")
        checked = shop.plan()
        versions = checked.step(checked.step("enriched").inputs[1])
        hidden = checked.step(versions.inputs[0])
        assert isinstance(versions.node, plan.Select)
        assert isinstance(hidden.node, plan.Hidden)
        assert hidden.inputs == ("users",)
        assert not any(isinstance(s.node, plan.Latest) for s in checked.steps)

    def test_corrected_answers_are_rows_that_change(self, shop, users):
        shop.orders.enrich(users, on="user_id", late="correct", allowed="1 hour").view("enriched")
        step = shop.plan().step("enriched")
        assert (step.updating, step.node.correct, step.node.allowed) == (True, True, timedelta(hours=1))

    def test_waiting_needs_a_lateness(self, shop, users, refused):
        logins = shop.flow.stream("logins", "user_id long, at timestamp", time="at")
        logins.enrich(users, on="user_id", wait="1 minute").view("enriched")
        assert refused().startswith("cannot judge the rows of logins: no lateness")

    def test_as_of_now_takes_append_times_along(self, shop, users):
        shop.orders.where("amount > 1").enrich(users, on="user_id", as_of="now").view("enriched")
        checked = shop.plan()
        assert checked.step("orders").node.appended
        assert checked.step("users").node.appended

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"late": "correct"}, 'late="correct" needs a bound'),
            ({"allowed": "1 hour"}, "allowed= says how long answers are corrected"),
            ({"as_of": "now", "wait": "1 minute"}, 'cannot enrich orders with users: as_of="now" answers with what is known'),
            ({"on": ("user_id", "order_id")}, "cannot enrich orders with users: the key of users is user_id"),
            ({"on": ()}, "cannot enrich orders with users: no column to look it up by"),
            ({"on": "order_id"}, "cannot enrich orders with users: 'order_id' is string and 'user_id' of users is long"),
        ],
    )
    def test_what_cannot_be_answered_is_refused(self, shop, users, refused, given, said):
        shop.orders.enrich(users, **{"on": "user_id", **given}).view("enriched")
        assert refused().startswith(said)

    def test_a_stream_is_no_table(self, shop, refused):
        shop.orders.enrich(shop.payments, on="order_id").view("enriched")
        assert refused().startswith("cannot enrich orders with payments: payments is a stream, not a table")

    def test_a_table_that_is_worked_out_cannot_be_looked_up_as_of_a_time(self, shop, users, refused):
        named = users.join(users.select("user_id", other="name"), on="user_id")
        shop.orders.enrich(named, on="user_id").view("enriched")
        assert "what join-users-select-users-user_id was at a time cannot be told" in refused()

    def test_a_table_cannot_be_enriched(self, shop, users, refused):
        users.enrich(users.select("user_id", other="name"), on="user_id").view("enriched")
        said = refused()
        assert said.startswith("cannot enrich users: its rows change, and this step takes rows that stay")
        assert 'made updating by step "users.table"' in said


class TestJoins:
    @pytest.fixture
    def accounts(self, shop):
        return shop.flow.table("accounts", "account_id long, user_id long, name string", key="account_id")

    def key(self, shop, joined):
        joined.view("joined")
        return shop.plan().step("joined").node.key

    @pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
    def test_a_foreign_key_leaves_the_rows_the_name_of_the_left_side(self, shop, users, accounts, how):
        assert self.key(shop, accounts.join(users, on="user_id", how=how)) == ("account_id",)

    @pytest.mark.parametrize("how", ["right", "full"])
    def test_rows_without_a_left_side_are_named_by_both(self, shop, users, accounts, how):
        assert self.key(shop, accounts.join(users, on="user_id", how=how)) == ("account_id", "user_id")

    def test_the_key_may_lie_on_the_other_side(self, shop, users, accounts):
        assert self.key(shop, users.join(accounts, on="user_id")) == ("account_id",)

    @pytest.mark.parametrize("how", ["inner", "full"])
    def test_equal_keys_are_one(self, shop, users, how):
        profiles = shop.flow.table("profiles", "user_id long, age int", key="user_id")
        assert self.key(shop, users.join(profiles, on="user_id", how=how)) == ("user_id",)

    def test_groups_may_be_null_on_either_side_of_a_full_join(self, shop, users, accounts):
        counts = [t.group_by("name").agg(**{n: agg.count()}) for t, n in ((users, "users"), (accounts, "accounts"))]
        assert self.key(shop, counts[0].join(counts[1], on="name", how="full")) == ()

    def test_many_with_many_are_named_by_both(self, shop, users, accounts):
        assert self.key(shop, accounts.join(users, on="name")) == ("account_id", "users_user_id")

    def test_columns_are_those_of_both_sides(self, shop, users, accounts):
        accounts.join(users, on="user_id", how="left").view("joined")
        step = shop.plan().step("joined")
        assert step.schema.names == ["user_id", "account_id", "name", "users_name", "country", "at"]
        assert step.updating

    def test_a_stream_without_a_time_bound_is_not_joined_with_a_table(self, shop, users, refused):
        shop.orders.join(users, on="user_id").view("joined")
        said = refused()
        assert said.startswith("cannot join orders with users: orders is a stream, and its rows stay as they are")
        assert "use enrich()" in said

    def test_a_time_bound_and_rows_that_change_do_not_go_together(self, shop, users, refused):
        shop.orders.join(users, on="user_id", within="1 hour").view("joined")
        assert refused().startswith("cannot join users: its rows change")

    def test_joins_of_joins_and_groups_over_them(self, shop, users, accounts):
        joined = accounts.join(users, on="user_id").join(
            shop.flow.static([], "country string, vat double", key="country"), on="country"
        )
        joined.group_by("country").agg(n=agg.count(), top=agg.max("vat")).view("per_country")
        step = shop.plan().step("per_country")
        assert step.node.key == ("account_id",)
        assert step.node.family == "grouping"

    def test_a_column_that_nobody_reads_is_left_out_on_both_sides(self, shop, users, accounts):
        accounts.join(users, on="user_id").select("account_id", "country").view("joined")
        checked = shop.plan()
        assert checked.step("users").schema.names == ["user_id", "country", "at"]
        assert checked.step("accounts").schema.names == ["account_id", "user_id"]


def test_keep_is_for_streams(shop, users, refused):
    users.group_by("country", keep="1 day").agg(n=agg.count()).view("per_country")
    assert refused().startswith("cannot let keys of users go when they are silent")


def test_a_changelog_is_read_as_a_table_and_not_as_a_stream(shop, refused):
    shop.orders.view("all")
    facts = {"orders": TopicFacts(True, changelog=True)}
    said = refused(topics=facts)
    assert said.startswith("cannot read orders as a stream: a flow writes it, and its rows change")
    assert 'flow.table("orders", …, key=…)' in said


def test_a_flow_is_described_without_touching_a_file(tmp_path):
    flow = FlowGraph("shop")
    flow.static(tmp_path / "missing.parquet", "a long", key="a").view("all")
    assert not list(tmp_path.iterdir())
