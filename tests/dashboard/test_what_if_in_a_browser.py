"""Preview and apply changes in a real browser, with real components on loopback."""

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.support.dashboard_pages import ALARM, BUSY, CAMERA, Pages
from tests.support.live_site import LiveSite
from tests.support.service_site import Client

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("no_external_requests")]


@pytest.fixture
def pages(browser: webdriver.Chrome, quiet_site: LiveSite) -> Pages:
    return Pages(browser, quiet_site.service.url)


def test_preview_predicts_the_values_after_apply(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    pages.until(lambda: pages.cell(CAMERA, "priority") == "1", "the camera's class")
    pages.select_row(CAMERA)
    pages.type("weight", "5000")
    pages.click("preview-change")
    pages.until_text("#preview", "another class or drop rate")
    active = "return document.activeElement.id;"
    assert pages.driver.execute_script(active) == "preview-card"
    top = "return document.getElementById('preview-card').getBoundingClientRect().top;"
    header = "return document.querySelector('header').getBoundingClientRect().bottom;"
    run = pages.driver.execute_script
    pages.until(lambda: run(header) <= run(top) < 400, "the preview on the screen")
    moves = pages.text("#preview .scroll:last-of-type tbody")
    assert moves
    before = pages.class_figure(0, "now-p95", "preview")
    predicted = pages.class_figure(0, "then-p95", "preview")
    assert before != predicted
    assert pages.cell(CAMERA, "weight") == "1", "nothing is applied yet"
    pages.click("apply")
    pages.until(lambda: pages.cell(CAMERA, "weight") == "5000", "the applied weight")
    pages.until(lambda: pages.cell(CAMERA, "priority") == "0", "the camera's new class")
    pages.follow_link("now")
    pages.until(
        lambda: pages.class_figure(0, "predicted-p95", "classes") == predicted,
        "the predicted p95 on the first page",
    )


def test_apply_requires_a_preview_of_the_same_input(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 camera/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    hold = """(real) => new Promise((done) => (window.held ??= []).push(() =>
        real().then((answer) => {
            done(answer);
            setTimeout(() => { window.late = true; }, 500);
        })))"""
    pages.intercept("/v1/what-if", hold)
    held = lambda: pages.driver.execute_script("return window.held?.length ?? 0;")  # noqa: E731
    for number, weight in enumerate(("20", "30"), 1):
        pages.type("weight", weight)
        pages.click("preview-change")
        pages.until(lambda n=number: held() == n, "a preview request")  # type: ignore[misc]
        assert not pages.can_apply(), "before the response"
    pages.driver.execute_script("window.held[1]();")
    pages.until(pages.can_apply, "the preview")
    pages.until_text("#preview", "weight 30")
    pages.driver.execute_script("window.late = false; window.held[0]();")
    pages.until(lambda: pages.driver.execute_script("return window.late;"), "a late response")
    assert "weight 30" in pages.text("#preview"), "the preview of the last request"
    assert pages.can_apply()
    pages.type("weight", "31")
    pages.until_text("#preview", "input has changed")
    assert not pages.can_apply(), "the input has changed"
    pages.intercept("/v1/what-if", BUSY)
    pages.click("preview-change")
    pages.until_text("#preview", "cannot be applied")
    pages.until_text("#refusal", "busy")
    assert not pages.can_apply(), "the preview has failed"
    pages.stop_intercepting()
    pages.click("preview-change")
    pages.until(pages.can_apply, "a preview")
    pages.click("apply")
    pages.until(lambda: pages.cell(row, "weight") == "31", "the previewed weight")


def set_weight(quiet_site: LiveSite, subscriber: str, name: str, weight: float) -> None:
    """Change a subscription like another user."""
    subscription = {
        "filter": name,
        "utility": {"kind": "log", "weight": weight},
        "deadline_seconds": 2.0,
    }
    path = f"/v1/subscribers/{subscriber}/subscriptions?wait_seconds=20"
    assert quiet_site.chief.ask("POST", path, {"subscriptions": [subscription]}).status == 200


def test_preview_expires_with_a_new_configuration(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 camera/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    pages.type("weight", "40")
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    set_weight(quiet_site, "crew-1", "alarm/#", 11.0)
    pages.until_text("#preview", "has become active since")
    assert not pages.can_apply()
    pages.click("preview-change")
    pages.until(pages.can_apply, "a new preview")
    pages.click("apply")
    pages.until(lambda: pages.cell(row, "weight") == "40", "the previewed weight")


def test_change_by_another_user_is_not_overwritten(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 camera/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    set_weight(quiet_site, "crew-2", "camera/#", 77.0)
    pages.until(lambda: pages.cell(row, "weight") == "77", "the change by the other user")
    pages.type("deadline", "3")
    pages.click("preview-change")
    pages.until_text("#refusal", "has changed since you selected it")
    pages.until_text("#preview", "has changed since you selected it")
    assert not pages.can_apply()
    pages.until_text("#chosen", "Select one in the table")
    pages.select_row(row)
    weight = "return document.getElementById('weight').value;"
    pages.until(lambda: pages.driver.execute_script(weight) == "77", "the current weight")
    pages.type("deadline", "3")
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    pages.click("apply")
    pages.until(lambda: pages.cell(row, "deadline_seconds") == "3.00 s", "the deadline")
    assert pages.cell(row, "weight") == "77"
    pages.until(lambda: not pages.is_visible("preview-card"), "applied")
    pages.type("weight", "78")  # no new selection is needed after a change by this user
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    pages.click("discard")


def test_invalid_number_is_rejected_and_not_treated_as_empty(
    pages: Pages, quiet_site: LiveSite
) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 alarm/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    for field, typed in (("deadline", "-1"), ("deadline", "abc"), ("weight", "-3")):
        keys = pages.driver.find_element(By.ID, field).get_attribute("inputmode")
        assert keys == "decimal"
        pages.type(field, typed)
        pages.click("preview-change")
        pages.until_text("#preview", f"not “{typed}”")
        pages.until_text("#refusal", field.capitalize())
        assert not pages.can_apply()
        pages.type(field, "2")
    pages.type("deadline", "0,4")
    pages.click("preview-change")
    pages.until_text("#preview", "deadline 0.40 s")
    pages.until(pages.can_apply, "the preview")
    pages.click("discard")


RATES_CHANGED = """(real) => real().then((answer) => answer.json()).then((said) => {
    said.present.achieved_utility_rate = 0.123;
    return new Response(JSON.stringify({ ...said, present_is_active: false }));
})"""


def test_preview_says_when_rates_changed_since_planning(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    pages.until(lambda: pages.cell(ALARM, "priority"), "the table")
    pages.select_row(ALARM)
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    assert "have changed since the active configuration" not in pages.text("#preview")
    pages.intercept("/v1/what-if", RATES_CHANGED)
    pages.click("preview-change")
    pages.until_text("#preview", "have changed since the active configuration")
    assert pages.text("#preview .now-utility") == "12 %"
    pages.stop_intercepting()
    pages.click("discard")


LOSE_FIRST_RESPONSE = """(real) => real().then((answer) => {
    if (window.lost) return answer;
    window.lost = true;
    throw new TypeError("lost");
})"""
LOSE_ALL_RESPONSES = '(real) => real().then(() => { throw new TypeError("lost"); })'


def test_apply_retries_after_a_lost_response(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 camera/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    pages.type("weight", "21")
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    pages.intercept("/v1/subscribers/", LOSE_FIRST_RESPONSE)
    before = quiet_site.chief.get("/v1/status").json["last_change"]
    pages.click("apply")
    pages.until_text("#done", "Applied: camera/# of crew-2: utility log, weight 21")
    assert quiet_site.chief.get("/v1/status").json["last_change"] == before + 1, "applied once"
    assert not pages.is_visible("refusal")


def test_input_is_kept_when_apply_gets_no_response(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 camera/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    pages.type("weight", "22")
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    pages.intercept("/v1/subscribers/", LOSE_ALL_RESPONSES)
    before = quiet_site.chief.get("/v1/status").json["last_change"]
    pages.click("apply")
    pages.until_text("#refusal", "unknown whether the change was applied")
    pages.until(lambda: pages.cell(row, "weight") == "22", "the applied weight")
    assert pages.can_apply(), "Apply can be repeated"
    pages.stop_intercepting()
    pages.click("apply")
    pages.until_text("#done", "Applied")
    assert quiet_site.chief.get("/v1/status").json["last_change"] == before + 1, "applied once"
    pages.type("weight", "23")
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    pages.intercept("/v1/subscribers/", LOSE_ALL_RESPONSES)
    pages.click("apply")
    pages.until_text("#refusal", "unknown whether the change was applied")
    pages.stop_intercepting()
    pages.type("deadline", "4")
    pages.click("preview-change")
    pages.until(pages.can_apply, "the preview")
    assert pages.text("#chosen") == "camera/# of crew-2"
    pages.click("apply")
    pages.until(lambda: pages.cell(row, "deadline_seconds") == "4.00 s", "the new deadline")
    assert pages.cell(row, "weight") == "23"


def test_utility_function_can_be_changed(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    row = "crew-2 camera/#"
    pages.until(lambda: pages.cell(row, "priority"), "the table")
    pages.select_row(row)
    pages.click_on("#kind label:nth-of-type(3)")
    pages.until(lambda: pages.is_visible("shape"), "the field for its shape")
    pages.type("shape", "0.5")
    pages.click("preview-change")
    pages.until_text("#preview", "capped 0.5")
    pages.until(pages.can_apply, "the preview")
    pages.click("apply")
    pages.until(lambda: pages.cell(row, "utility_words") == "capped 0.5", "the new shape")
    kept = quiet_site.chief.get("/v1/subscribers/crew-2/subscriptions").json["subscriptions"]
    (camera,) = [each for each in kept if each["filter"] == "camera/#"]
    assert (camera["utility"]["kind"], camera["utility"]["enough"]) == ("capped", 0.5)


def test_discarded_preview_changes_nothing(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    pages.until(lambda: pages.cell("crew-2 alarm/#", "priority"), "the table")
    version = quiet_site.chief.get("/v1/status").json["active_version"]
    pages.select_row("crew-2 alarm/#")
    pages.click("preview-removal")
    pages.until_text("#preview", "removed")
    pages.until_text("#preview", "Utility achieved")
    pages.click("discard")
    pages.until(
        lambda: not pages.driver.find_element(By.ID, "preview-card").is_displayed(), "discarded"
    )
    assert quiet_site.chief.get("/v1/status").json["active_version"] == version


def test_phase_change_reorders_classes(pages: Pages, quiet_site: LiveSite) -> None:
    rules = [{"filter": "alarm/#", "factor": 1e6}, {"filter": "camera/#", "factor": 1e-3}]
    quiet_site.chief.ask("PUT", "/v1/profiles/search?wait_seconds=20", {"rules": rules})
    other_rules = [{"filter": "alarm/#", "factor": 1e-3}, {"filter": "camera/#", "factor": 1e6}]
    quiet_site.chief.ask("PUT", "/v1/profiles/attack?wait_seconds=20", {"rules": other_rules})
    opening = {"title": "test fire", "phase": "search"}
    quiet_site.chief.ask("POST", "/v1/incident?wait_seconds=20", opening)
    row = "crew-2 alarm/#"
    pages.visit("subscriptions", quiet_site.token)
    pages.until(lambda: pages.cell(row, "priority") == "0", "alarms first")
    pages.until_text("#phases", "attack")
    pages.type("phase", "attack")
    pages.click("preview-phase")
    pages.until_text("#preview", "another class or drop rate")
    assert pages.cell(row, "priority") == "0"
    pages.click("apply")
    pages.until(lambda: pages.cell(row, "priority") == "1", "cameras first")
    pages.until_text("#incident", "test fire: attack")


@pytest.mark.refused("status of 412")
def test_concurrent_phase_change_is_not_overwritten(pages: Pages, quiet_site: LiveSite) -> None:
    pages.visit("subscriptions", quiet_site.token)
    pages.until_text("#incident", "test fire: attack")
    pages.until_text("#phases", "search")
    pages.type("phase", "mop-up")
    pages.click("preview-phase")
    pages.until_text("#preview", "this phase has no profile")
    pages.type("phase", "search")
    pages.click("preview-phase")
    pages.until(pages.can_apply, "the preview")
    same = "() => Promise.resolve(new Response(JSON.stringify(firedex.state.overview)))"
    pages.intercept("/v1/overview", same)  # hide the change from the page
    quiet_site.chief.ask("PUT", "/v1/incident/phase?wait_seconds=20", {"phase": "overhaul"})
    pages.click("apply")
    pages.until_text("#refusal", "the incident is now in the phase 'overhaul'")
    assert quiet_site.chief.get("/v1/incident").json["phase"] == "overhaul"
    pages.stop_intercepting()
    pages.click("preview-phase")
    pages.until(pages.can_apply, "the preview")
    quiet_site.chief.ask("PUT", "/v1/incident/phase?wait_seconds=20", {"phase": "attack"})
    pages.until_text("#preview", "its phase has changed since")
    assert not pages.can_apply()


@pytest.mark.refused("status of 403")
def test_subscriber_token_cannot_change_another_subscriber(
    pages: Pages, quiet_site: LiveSite
) -> None:
    token = quiet_site.service.token("two", "subscriber", "crew-2")
    pages.visit("subscriptions?subscriber=crew-1", token)
    pages.until_text("#refusal", "is not for subscriber 'crew-1'")
    assert pages.cell(ALARM, "weight") == ""
    body = {"subscriptions": [{"filter": "alarm/#", "utility": {"kind": "log", "weight": 1.0}}]}
    answer = pages.driver.execute_async_script(
        "const [token, body, done] = arguments;"
        "fetch('/v1/subscribers/crew-1/subscriptions', {method: 'POST', body: JSON.stringify(body),"
        " headers: {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'}})"
        ".then((answer) => done(answer.status));",
        token,
        body,
    )
    assert answer == 403
    pages.visit("subscriptions", token)
    pages.until(lambda: pages.cell("crew-2 alarm/#", "weight") == "10", "the own subscription")
    assert pages.cell(ALARM, "weight") == ""
    pages.select_row("crew-2 alarm/#")
    pages.type("weight", "12")
    pages.click("preview-change")
    pages.until_text("#preview", "You can apply the change")
    pages.click("apply")
    command = Client(quiet_site.service.url, quiet_site.token)
    pages.until(
        lambda: "12.0" in command.get("/v1/subscribers/crew-2/subscriptions").body.decode(),
        "the own change",
    )
