"""Packages of other versions are refused before anything loads, each with its reason."""

from importlib.metadata import PackageNotFoundError

import pytest

from proofreel.core.errors import DirectoryError
from proofreel.models.directory.format import Requirement, check_requirements, requirements_of


def installed(**versions):
    def version_of(name):
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    return version_of


def test_what_is_installed_here_fits_what_is_recorded_here():
    check_requirements(requirements_of(sees=True, adapter=True, quantised=True), "v")


def test_a_verifier_asks_for_no_more_than_it_uses():
    text = requirements_of(sees=False, adapter=False, quantised=False)
    assert not {"torchvision", "peft", "bitsandbytes"} & set(text)
    assert all(r.reason for r in requirements_of(True, True, True).values())


def test_every_misfit_is_named_with_its_reason_in_one_sentence():
    wanted = {"a": Requirement(">=2,<3", "its numbers"), "b": Requirement(">=1", "its names")}
    wanted["c"] = Requirement("", "x")
    with pytest.raises(DirectoryError) as caught:
        check_requirements(wanted, "dir", installed(a="3.1", c="0"))
    message = str(caught.value)
    assert "a is 3.1, needed is >=2,<3 (its numbers)" in message
    assert "b is not installed" in message
    assert "c is" not in message


def test_what_an_extra_brings_is_named_with_its_command_and_no_other_package_is():
    wanted = {"bitsandbytes": Requirement(">=0.50", "its weights"), "evil": Requirement("", "x")}
    with pytest.raises(DirectoryError, match=r'install those: pip install "proofreel\[train\]"$'):
        check_requirements(wanted, "dir", installed())
    with pytest.raises(DirectoryError, match=r"install those$"):
        check_requirements(wanted, "dir", installed(bitsandbytes="0.50"))


@pytest.mark.parametrize("version", ["2.14.1", "2.14.1+cpu", "2.15.0a0+git1"])
def test_local_and_development_versions_count_as_their_release(version):
    check_requirements({"torch": Requirement(">=2.11", "x")}, "dir", installed(torch=version))


def test_a_range_that_is_none_is_refused():
    with pytest.raises(DirectoryError, match="no version range"):
        check_requirements({"torch": Requirement("newest", "x")}, "dir", installed(torch="1"))
