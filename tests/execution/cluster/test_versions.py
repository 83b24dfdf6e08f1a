"""How the environment of a node is told from the driver's."""

from __future__ import annotations

import importlib.metadata
import sys

from marin.execution.cluster.versions import ABSENT, CLIENTS, DECISIVE, Difference, differences, told, versions


def test_versions_are_those_of_the_installed_distributions_without_what_names_a_machine() -> None:
    found = versions()
    assert found["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found["torch"] == importlib.metadata.version("torch").split("+")[0]
    assert found["ray"] == importlib.metadata.version("ray")
    assert set(found) == {"python", "marin", *DECISIVE, *CLIENTS}
    assert len(found["marin"]) == 12


def test_a_difference_is_decisive_unless_only_a_client_of_the_store_differs() -> None:
    here = {"python": "3.11", "tokenizers": "0.23.3", "gcsfs": "2026.10.1", "ray": "2.60.0"}
    there = {"python": "3.11", "tokenizers": "0.22.0", "gcsfs": "2026.9.0"}
    assert differences(here, there) == [
        Difference("tokenizers", "0.23.3", "0.22.0", True),
        Difference("gcsfs", "2026.10.1", "2026.9.0", False),
        Difference("ray", "2.60.0", ABSENT, True),
    ]
    assert told("the node n2", differences(here, there)[:1]) == (
        "the node n2 has tokenizers 0.22.0, and the driver has 0.23.3"
    )
