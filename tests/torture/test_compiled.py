"""`train.compile` as users get it: built by the C++ compiler, for every system."""

import pytest
from test_train_variants import SYSTEMS, check_same, data, step_of  # noqa: F401


@pytest.mark.parametrize("system", SYSTEMS)
def test_compiled_changes_no_number(system, data):  # noqa: F811
    check_same(step_of(system, data), step_of(system, data, compile=True), terms=1e-4, gradient=1e-3)
