"""The files that ``calibrate`` writes: overlay, scenario, estimates and an HTML page."""

from dataclasses import asdict
from pathlib import Path

import yaml

from firedex.wire import to_plain
from firedex_spark.calibration.job import Calibration
from firedex_spark.report import (
    Page,
    add_skipped_input,
    interval_text,
    write_json,
    write_quarantine,
)

__all__ = ["CALIBRATION_RESULTS", "write_calibration"]

CALIBRATION_RESULTS = (
    "overlay.yaml",
    "calibrated.yaml",
    "estimates.json",
    "quarantine.json",
    "report.html",
)


def write_calibration(calibration: Calibration, folder: Path) -> None:
    """Write ``CALIBRATION_RESULTS``."""
    overlay = yaml.safe_dump(calibration.overlay, sort_keys=False, allow_unicode=True)
    (folder / "overlay.yaml").write_text(overlay, "utf-8")
    plain = {k: v for k, v in to_plain(calibration.scenario).items() if v is not None}
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    (folder / "calibrated.yaml").write_text(text, "utf-8")
    write_json(folder / "estimates.json", [asdict(one) for one in calibration.estimates])
    write_quarantine(folder, calibration.skipped)
    page = Page("Scenario parameters from delivery records")
    page.text(f"Records of site {calibration.site}.")
    add_skipped_input(page, calibration.skipped, dict(calibration.refused))
    page.heading("Predictions before and after")
    page.text(
        "Errors in the later half of every run, with the declared values and with estimates from "
        "the earlier half. The overlay itself is estimated from both halves. "
        f"{_verdict(calibration)}"
    )
    page.table(
        ("", "median error of delays", "worst", "worst error of success"),
        [
            (name, f"{error.delay_median:.1%}", f"{error.delay_worst:.1%}", error.success_worst)
            for name, error in (("declared", calibration.before), ("calibrated", calibration.after))
        ],
    )
    page.heading("Parameters")
    page.text(
        "A declared value is kept unless the difference is significant (5 % for all parameters "
        "together). The speeds of the broker and of the switch tables cannot be estimated from "
        "end-to-end records and are kept too."
    )
    page.table(
        ("parameter", "of", "declared", "estimated", "95 % interval", "in the overlay", "note"),
        [
            (
                e.kind,
                e.name,
                e.declared,
                e.estimated,
                interval_text(e.interval),
                "yes" if e.applied else "as declared" if e.as_declared else "no",
                e.note,
            )
            for e in calibration.estimates
        ],
    )
    page.write(folder / "report.html")


def _verdict(calibration: Calibration) -> str:
    noise = calibration.before.delay_noise
    if calibration.is_better:
        return "Predictions of delays are better with the overlay."
    if calibration.is_worse:
        return "Predictions of delays are worse with the overlay; find out why before you use it."
    if calibration.before == calibration.after:
        return "They are the same: no changed parameter affects predictions."
    measured = "" if noise is None else f" (the measured means are uncertain by {noise:.1%})"
    return f"The difference is within the measurement uncertainty{measured}."
