"""Inside the sandbox: run a critical event on real switches and read the dashboard meanwhile."""

import json
import sys
import threading
from pathlib import Path

from selenium.webdriver.common.by import By

from firedex.scenario import read_scenario
from firedex_emulation.testbed.emulated_network import EDGE_MANAGEMENT, build_network
from firedex_emulation.testbed.experiment import run_experiment
from firedex_emulation.testbed.interface import ExperimentSettings
from firedex_emulation.testbed.sandbox import enter_sandbox, start_open_vswitch
from firedex_emulation.testbed.site_processes import CONTROLLER_PORT, SERVICE_PORT
from firedex_emulation.testbed.switch_testbed import SwitchTestbed
from tests.support.browser import console_errors, headless_browser, requested_addresses
from tests.support.dashboard_pages import Pages

SECONDS = 60.0


def read_dashboard(url: str) -> dict[str, object]:
    """Return the texts of the pages while events flow."""
    with headless_browser() as driver:
        pages = Pages(driver, url)
        pages.visit()

        def measured_p95() -> str:
            text = pages.class_figure(0, "measured-p95", "classes")
            return "" if text == "–" else text

        p95 = pages.until(measured_p95, "a measured p95")
        health = pages.text("#parts")
        pages.follow_link("topology")
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
    """Run the experiment, read the dashboard, and print the texts."""
    enter_sandbox()
    scenario = read_scenario("builtin:critical-event")
    start_open_vswitch()
    network = build_network(scenario, controller_port=CONTROLLER_PORT, topology=None)
    testbed = SwitchTestbed(network, scenario, framework="os-ken", bounded=True)
    experiment = ExperimentSettings(
        scenario=scenario, mode="firedex", seconds=SECONDS, seed=1, records=folder
    )
    running = threading.Thread(
        target=run_experiment, args=(testbed, experiment, lambda _: None), daemon=True
    )
    running.start()
    print(json.dumps(read_dashboard(f"http://{EDGE_MANAGEMENT}:{SERVICE_PORT}")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
