"""Paths of objects at the API server, whatever is in a name."""

from __future__ import annotations

from gemini.kube.paths import PATHS, claim_path, lease_path, pod_path, quote, resize_path


def test_paths_are_those_of_the_api_server() -> None:
    assert PATHS["Pod"] == "/api/v1/pods"
    assert pod_path("ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert claim_path("ns", "c").endswith("/namespaces/ns/resourceclaims/c")
    assert lease_path("ns") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert resize_path("ns").endswith("/namespaces/ns/resizes")
    assert resize_path("ns", "r") == resize_path("ns") + "/r"


def test_a_name_stays_one_part_of_a_path() -> None:
    assert quote("../a?b#c d") == "..%2Fa%3Fb%23c%20d"
    assert pod_path("a/b", "c/d").count("/") == pod_path("a", "b").count("/")
