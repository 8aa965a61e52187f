"""What a change would do, before it is made: in a real browser, against real parts on loopback."""

import pytest
from dashboard_pages import ALARM, BUSY, CAMERA, Pages
from live_site import LiveSite
from selenium.webdriver.common.by import By
from service_site import Client

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("nothing_leaves")]


def test_what_if_shows_other_numbers_before_and_the_same_after(
    deciding: Pages, quiet: LiveSite
) -> None:
    deciding.visit("subscriptions", quiet.token)
    deciding.until(lambda: deciding.cell(CAMERA, "priority") == "1", "the camera's class")
    deciding.choose(CAMERA)
    deciding.type("weight", "5000")
    deciding.click("preview-change")
    deciding.until_text("#preview", "served otherwise")
    active = "return document.activeElement.id;"
    assert deciding.driver.execute_script(active) == "preview-card"
    top = "return document.getElementById('preview-card').getBoundingClientRect().top;"
    header = "return document.querySelector('header').getBoundingClientRect().bottom;"
    run = deciding.driver.execute_script
    deciding.until(lambda: run(header) <= run(top) < 400, "the answer on the screen")
    moves = deciding.text("#preview .scroll:last-of-type tbody")
    assert moves
    before = deciding.class_figure(0, "now-p95", "preview")
    promised = deciding.class_figure(0, "then-p95", "preview")
    assert before != promised
    assert deciding.cell(CAMERA, "weight") == "1", "nothing is applied yet"
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(CAMERA, "weight") == "5000", "the applied weight")
    deciding.until(lambda: deciding.cell(CAMERA, "priority") == "0", "the camera's new class")
    deciding.go("now")
    deciding.until(
        lambda: deciding.class_figure(0, "predicted-p95", "classes") == promised,
        "the promised p95 on the first page",
    )


def test_nothing_is_applied_but_what_was_answered(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 camera/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    hold = """(real) => new Promise((done) => (window.held ??= []).push(() =>
        real().then((answer) => {
            done(answer);
            setTimeout(() => { window.late = true; }, 500);
        })))"""
    deciding.intercept("/v1/what-if", hold)
    held = lambda: deciding.driver.execute_script("return window.held?.length ?? 0;")  # noqa: E731
    for number, weight in enumerate(("20", "30"), 1):
        deciding.type("weight", weight)
        deciding.click("preview-change")
        deciding.until(lambda n=number: held() == n, "a question")  # type: ignore[misc]
        assert not deciding.can_apply(), "before its answer"
    deciding.driver.execute_script("window.held[1]();")
    deciding.until(deciding.can_apply, "the answer")
    deciding.until_text("#preview", "weight 30")
    deciding.driver.execute_script("window.late = false; window.held[0]();")
    deciding.until(lambda: deciding.driver.execute_script("return window.late;"), "a late answer")
    assert "weight 30" in deciding.text("#preview"), "of the last question alone"
    assert deciding.can_apply()
    deciding.type("weight", "31")
    deciding.until_text("#preview", "inputs have changed")
    assert not deciding.can_apply(), "for other inputs"
    deciding.intercept("/v1/what-if", BUSY)
    deciding.click("preview-change")
    deciding.until_text("#preview", "cannot be applied")
    deciding.until_text("#refusal", "busy")
    assert not deciding.can_apply(), "after it failed"
    deciding.let_through()
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "an answer")
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(row, "weight") == "31", "what was asked about")


def weigh(quiet: LiveSite, who: str, name: str, weight: float) -> None:
    """Somebody else changes a subscription."""
    wanted = {
        "filter": name,
        "utility": {"kind": "log", "weight": weight},
        "deadline_seconds": 2.0,
    }
    path = f"/v1/subscribers/{who}/subscriptions?wait_seconds=20"
    assert quiet.chief.ask("POST", path, {"subscriptions": [wanted]}).status == 200


def test_an_answer_does_not_hold_under_another_plan(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 camera/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    deciding.type("weight", "40")
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    weigh(quiet, "crew-1", "alarm/#", 11.0)
    deciding.until_text("#preview", "has come into force since")
    assert not deciding.can_apply()
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "another answer")
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(row, "weight") == "40", "what was asked about again")


def test_what_somebody_else_changed_is_not_overwritten(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 camera/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    weigh(quiet, "crew-2", "camera/#", 77.0)
    deciding.until(lambda: deciding.cell(row, "weight") == "77", "the other's change")
    deciding.type("deadline", "3")
    deciding.click("preview-change")
    deciding.until_text("#refusal", "has changed since you chose it")
    deciding.until_text("#preview", "has changed since you chose it")
    assert not deciding.can_apply()
    deciding.until_text("#chosen", "Choose one in the table")
    deciding.choose(row)
    weight = "return document.getElementById('weight').value;"
    deciding.until(lambda: deciding.driver.execute_script(weight) == "77", "as it is now")
    deciding.type("deadline", "3")
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(row, "deadline_seconds") == "3.00 s", "the deadline")
    assert deciding.cell(row, "weight") == "77"
    deciding.until(lambda: not deciding.shown("preview-card"), "applied")
    deciding.type("weight", "78")  # one's own change is no reason to choose again
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    deciding.click("discard")


def test_what_is_no_deadline_is_not_taken_for_none(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 alarm/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    for field, typed in (("deadline", "-1"), ("deadline", "abc"), ("weight", "-3")):
        keys = deciding.driver.find_element(By.ID, field).get_attribute("inputmode")
        assert keys == "decimal"
        deciding.type(field, typed)
        deciding.click("preview-change")
        deciding.until_text("#preview", f"which “{typed}” is not")
        deciding.until_text("#refusal", field.capitalize())
        assert not deciding.can_apply()
        deciding.type(field, "2")
    deciding.type("deadline", "0,4")
    deciding.click("preview-change")
    deciding.until_text("#preview", "deadline 0.40 s")
    deciding.until(deciding.can_apply, "the answer")
    deciding.click("discard")


MOVED = """(real) => real().then((answer) => answer.json()).then((said) => {
    said.present.achieved_utility_rate = 0.123;
    return new Response(JSON.stringify({ ...said, present_is_in_force: false }));
})"""


def test_now_is_planned_with_the_rates_of_then(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    deciding.until(lambda: deciding.cell(ALARM, "priority"), "the table")
    deciding.choose(ALARM)
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    assert "rates have moved" not in deciding.text("#preview")
    deciding.intercept("/v1/what-if", MOVED)
    deciding.click("preview-change")
    deciding.until_text("#preview", "rates have moved")
    assert deciding.text("#preview .now-utility") == "12 %"
    deciding.let_through()
    deciding.click("discard")


LOSE_ONE = """(real) => real().then((answer) => {
    if (window.lost) return answer;
    window.lost = true;
    throw new TypeError("lost");
})"""
LOSE_ALL = '(real) => real().then(() => { throw new TypeError("lost"); })'


def test_a_lost_answer_to_apply_is_asked_for_again(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 camera/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    deciding.type("weight", "21")
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    deciding.intercept("/v1/subscribers/", LOSE_ONE)
    before = quiet.chief.get("/v1/status").json["last_change"]
    deciding.click("apply")
    deciding.until_text("#done", "Applied: camera/# of crew-2: utility log, weight 21")
    assert quiet.chief.get("/v1/status").json["last_change"] == before + 1, "done once"
    assert not deciding.shown("refusal")


def test_without_any_answer_to_apply_nothing_typed_is_lost(
    deciding: Pages, quiet: LiveSite
) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 camera/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    deciding.type("weight", "22")
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    deciding.intercept("/v1/subscribers/", LOSE_ALL)
    before = quiet.chief.get("/v1/status").json["last_change"]
    deciding.click("apply")
    deciding.until_text("#refusal", "not known whether it was applied")
    deciding.until(lambda: deciding.cell(row, "weight") == "22", "it was")
    assert deciding.can_apply(), "again"
    deciding.let_through()
    deciding.click("apply")
    deciding.until_text("#done", "Applied")
    assert quiet.chief.get("/v1/status").json["last_change"] == before + 1, "done once"
    deciding.type("weight", "23")
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    deciding.intercept("/v1/subscribers/", LOSE_ALL)
    deciding.click("apply")
    deciding.until_text("#refusal", "not known whether it was applied")
    deciding.let_through()
    deciding.type("deadline", "4")
    deciding.click("preview-change")
    deciding.until(deciding.can_apply, "the answer")
    assert deciding.text("#chosen") == "camera/# of crew-2"
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(row, "deadline_seconds") == "4.00 s", "what was typed")
    assert deciding.cell(row, "weight") == "23"


def test_the_shape_of_a_utility_is_changed(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    row = "crew-2 camera/#"
    deciding.until(lambda: deciding.cell(row, "priority"), "the table")
    deciding.choose(row)
    deciding.click_on("#kind label:nth-of-type(3)")
    deciding.until(lambda: deciding.shown("shape"), "the field for its shape")
    deciding.type("shape", "0.5")
    deciding.click("preview-change")
    deciding.until_text("#preview", "capped 0.5")
    deciding.until(deciding.can_apply, "the answer")
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(row, "utility_words") == "capped 0.5", "the new shape")
    kept = quiet.chief.get("/v1/subscribers/crew-2/subscriptions").json["subscriptions"]
    (camera,) = [each for each in kept if each["filter"] == "camera/#"]
    assert (camera["utility"]["kind"], camera["utility"]["enough"]) == ("capped", 0.5)


def test_discarded_is_as_if_never_asked(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    deciding.until(lambda: deciding.cell("crew-2 alarm/#", "priority"), "the table")
    version = quiet.chief.get("/v1/status").json["in_force_version"]
    deciding.choose("crew-2 alarm/#")
    deciding.click("preview-removal")
    deciding.until_text("#preview", "removed")
    deciding.until_text("#preview", "Utility achieved")
    deciding.click("discard")
    deciding.until(
        lambda: not deciding.driver.find_element(By.ID, "preview-card").is_displayed(), "discarded"
    )
    assert quiet.chief.get("/v1/status").json["in_force_version"] == version


def test_a_phase_change_reorders_classes(deciding: Pages, quiet: LiveSite) -> None:
    rules = [{"filter": "alarm/#", "factor": 1e6}, {"filter": "camera/#", "factor": 1e-3}]
    quiet.chief.ask("PUT", "/v1/profiles/search?wait_seconds=20", {"rules": rules})
    again = [{"filter": "alarm/#", "factor": 1e-3}, {"filter": "camera/#", "factor": 1e6}]
    quiet.chief.ask("PUT", "/v1/profiles/attack?wait_seconds=20", {"rules": again})
    opening = {"title": "test fire", "phase": "search"}
    quiet.chief.ask("POST", "/v1/incident?wait_seconds=20", opening)
    row = "crew-2 alarm/#"
    deciding.visit("subscriptions", quiet.token)
    deciding.until(lambda: deciding.cell(row, "priority") == "0", "alarms first")
    deciding.until_text("#phases", "attack")
    deciding.type("phase", "attack")
    deciding.click("preview-phase")
    deciding.until_text("#preview", "served otherwise")
    assert deciding.cell(row, "priority") == "0"
    deciding.click("apply")
    deciding.until(lambda: deciding.cell(row, "priority") == "1", "cameras first")
    deciding.until_text("#incident", "test fire: attack")


@pytest.mark.refused("status of 412")
def test_a_phase_that_came_meanwhile_is_not_overwritten(deciding: Pages, quiet: LiveSite) -> None:
    deciding.visit("subscriptions", quiet.token)
    deciding.until_text("#incident", "test fire: attack")
    deciding.until_text("#phases", "search")
    deciding.type("phase", "mop-up")
    deciding.click("preview-phase")
    deciding.until_text("#preview", "this phase has no profile")
    deciding.type("phase", "search")
    deciding.click("preview-phase")
    deciding.until(deciding.can_apply, "the answer")
    same = "() => Promise.resolve(new Response(JSON.stringify(firedex.state.overview)))"
    deciding.intercept("/v1/overview", same)  # so that the page does not know
    quiet.chief.ask("PUT", "/v1/incident/phase?wait_seconds=20", {"phase": "overhaul"})
    deciding.click("apply")
    deciding.until_text("#refusal", "gone into the phase 'overhaul' meanwhile")
    assert quiet.chief.get("/v1/incident").json["phase"] == "overhaul"
    deciding.let_through()
    deciding.click("preview-phase")
    deciding.until(deciding.can_apply, "the answer")
    quiet.chief.ask("PUT", "/v1/incident/phase?wait_seconds=20", {"phase": "attack"})
    deciding.until_text("#preview", "its phase has changed since")
    assert not deciding.can_apply()


@pytest.mark.refused("status of 403")
def test_a_subscriber_s_token_cannot_change_another_s(deciding: Pages, quiet: LiveSite) -> None:
    token = quiet.service.token("two", "subscriber", "crew-2")
    deciding.visit("subscriptions?subscriber=crew-1", token)
    deciding.until_text("#refusal", "is not for subscriber 'crew-1'")
    assert deciding.cell(ALARM, "weight") == ""
    body = {"subscriptions": [{"filter": "alarm/#", "utility": {"kind": "log", "weight": 1.0}}]}
    answer = deciding.driver.execute_async_script(
        "const [token, body, done] = arguments;"
        "fetch('/v1/subscribers/crew-1/subscriptions', {method: 'POST', body: JSON.stringify(body),"
        " headers: {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'}})"
        ".then((answer) => done(answer.status));",
        token,
        body,
    )
    assert answer == 403
    deciding.visit("subscriptions", token)
    deciding.until(lambda: deciding.cell("crew-2 alarm/#", "weight") == "10", "its own")
    assert deciding.cell(ALARM, "weight") == ""
    deciding.choose("crew-2 alarm/#")
    deciding.type("weight", "12")
    deciding.click("preview-change")
    deciding.until_text("#preview", "you may apply it")
    deciding.click("apply")
    mine = Client(quiet.service.url, quiet.token)
    deciding.until(
        lambda: "12.0" in mine.get("/v1/subscribers/crew-2/subscriptions").body.decode(),
        "its own change",
    )
