"""Inside the sandbox: a critical event on real switches, looked at in a browser meanwhile."""

import json
import sys
import threading
from pathlib import Path

from dashboard_pages import Pages
from selenium.webdriver.common.by import By

from firedex.dashboard_browser import console_errors, headless_browser, requested_addresses
from firedex.scenario_file import read_scenario
from firedex_emulation.choreography import conduct
from firedex_emulation.emulated_network import EDGE_MANAGEMENT, build_network
from firedex_emulation.sandbox import settle_in
from firedex_emulation.site_processes import CONTROLLER_PORT, SERVICE_PORT
from firedex_emulation.stage import Performance
from firedex_emulation.switch_host import start_open_vswitch
from firedex_emulation.switch_stage import SwitchStage

SECONDS = 60.0


def look(url: str) -> dict[str, object]:
    """What the pages show while events flow."""
    with headless_browser() as driver:
        pages = Pages(driver, url)
        pages.visit()

        def measured() -> str:
            text = pages.class_figure(0, "measured-p95", "classes")
            return "" if text == "–" else text

        p95 = pages.until(measured, "a measured p95")
        health = pages.text("#parts")
        pages.go("topology")
        pages.until(
            lambda: driver.find_elements(By.CSS_SELECTOR, "#switches .ag-row"), "the switches"
        )
        managed = pages.driver.execute_script(
            "return [...document.querySelectorAll('#switches .ag-row')]"
            ".filter((row) => !row.textContent.includes('not managed'))[0].getAttribute('row-id');"
        )
        pages.click_on(f"#switches .ag-row[row-id='{managed}'] [col-id='id']")
        pages.until_text("#switch", "Queues")
        rules = pages.text("#switch")
        return {
            "p95": p95,
            "health": health,
            "rules": rules,
            "errors": console_errors(driver),
            "outside": [a for a in requested_addresses(driver) if not a.startswith(url)],
        }


def main(folder: Path) -> None:
    """Run, look, print what was seen."""
    settle_in()
    scenario = read_scenario("builtin:critical-event")
    start_open_vswitch()
    network = build_network(scenario, controller_port=CONTROLLER_PORT, topology=None)
    stage = SwitchStage(network, scenario, framework="os-ken", bounded=True)
    performance = Performance(
        scenario=scenario, way="firedex", seconds=SECONDS, seed=1, records=folder
    )
    running = threading.Thread(
        target=conduct, args=(stage, performance, lambda _: None), daemon=True
    )
    running.start()
    print(json.dumps(look(f"http://{EDGE_MANAGEMENT}:{SERVICE_PORT}")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
