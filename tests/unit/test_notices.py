"""Of what other libraries say on every start, a run leaves out what says nothing about it, and only that."""

import logging

import pytest

import proofreel

KERNEL = "Failed to load CPU gemm_4bit_forward from kernels-community: %s. Please make sure"


@pytest.mark.parametrize(("message", "is_told"), [(KERNEL, False), ("Failed to load the library: %s", True)])
def test_only_the_optional_cpu_kernel_goes_unmentioned(message, is_told, caplog):
    assert proofreel.__version__
    logging.getLogger("bitsandbytes.backends.cpu.ops").warning(message, "No module named 'kernels'")
    logging.getLogger("bitsandbytes.backends.cpu").warning(message, "said elsewhere")
    assert [record.args for record in caplog.records if "kernels" in str(record.args)] == (
        [("No module named 'kernels'",)] if is_told else []
    )
    assert ("said elsewhere",) in [record.args for record in caplog.records]
