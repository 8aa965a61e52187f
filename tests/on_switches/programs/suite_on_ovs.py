"""Runs the controller's suite inside the sandbox, on a real Open vSwitch."""

import contextlib
import os
import sys

import pytest

from firedex_emulation.testbed.sandbox import enter_sandbox, start_open_vswitch

if __name__ == "__main__":
    enter_sandbox()
    start_open_vswitch()
    os.environ["FIREDEX_SUITE_SWITCH"] = "ovs"
    with contextlib.redirect_stdout(sys.stderr):
        options = ["-q", "-p", "no:cacheprovider", "-k", "os-ken", f"--basetemp={sys.argv[2]}"]
        code = pytest.main([*options, sys.argv[1]])
    sys.exit(code)
