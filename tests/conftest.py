"""What every test shares: one thread, a seed, the shapes of jaxtyping executed, and the optional real data."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing in a test may use the network

from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

# Every annotated shape of these modules is checked at each call while the tests run. The modules named here are
# imported after this line, by the tests themselves.
install_import_hook(
    ["xyd.model", "xyd.loss", "xyd.batching", "xyd.decode"],
    "beartype.beartype",
)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


def shared_dir() -> Path | None:
    """The folder of real corpora: XYD_SHARED, or ../shared beside the project."""
    here = Path(os.environ.get("XYD_SHARED", Path(__file__).parents[2] / "shared"))
    return here if (here / "data").is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """Path of the shared folder; the test is skipped where there is none."""
    found = shared_dir()
    if found is None:
        pytest.skip("the shared corpora are not here: set XYD_SHARED to their folder")
    return found


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]  # its module comes after the hook
    """A toy corpus, prepared once: see toy.py."""
    from toy import Toy

    return Toy.make(tmp_path_factory.mktemp("toy"))
