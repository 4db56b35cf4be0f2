"""The example manifests of HAMi's, Volcano's and KAI's documentation: each by `gemini migrate`, and by admission as it
stands; converted as the table says, or refused with one line. That the converted ones run: tests/e2e/test_examples.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from gemini.cli.main import main
from gemini.kube import names
from gemini.kube.pod import parse_pod
from gemini.webhook.review import mutate, validate
from tests.gemini.kube.examples import EXAMPLES, UPSTREAM, Example
from tests.gemini.webhook.test_review import HERE, patched, review

PAGE = Path(__file__).resolve().parents[3] / "docs/migrating.md"
PLAIN = {"gpu-uuid", "gpu-uuid-exclude", "gpu-policy"}  # said of the pod, not of a container


def in_full(becomes: dict[str, str]) -> dict[str, str]:
    """As they stand on the pod."""
    named = {key: key if key in PLAIN or "." in key else f"{key}.c0" for key in becomes}
    return {f"{names.DOMAIN}/{named[key]}": value for key, value in becomes.items()}


def templates(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest if manifest["kind"] == "Pod" else dict(manifest["spec"]["template"])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_an_example_is_rewritten_or_refused_in_one_line(
    example: Example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(yaml.safe_dump_all(example.manifests("e")))
    status = main(["migrate", "--from", example.source, "-f", str(file)])
    out, err = capsys.readouterr()
    if isinstance(example.becomes, str):
        assert (status, out, err.count("\n")) == (1, "", 1), (out, err)
        assert example.becomes in err
        return
    assert (status, err) == (0, ""), err
    made = [templates(one) for one in yaml.safe_load_all(out)]
    assert [pod["metadata"]["annotations"] for pod in made] == [in_full(one) for one in example.becomes]
    for pod in made:
        assert "schedulerName" not in pod["spec"]
        asked = [one.get("resources") for part in ("containers", "initContainers") for one in pod["spec"].get(part, ())]
        assert asked == [None] * len(asked), "nothing of theirs is left"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_admission_says_the_same_of_an_example_as_it_stands(example: Example) -> None:
    """In a namespace that opted in. A pod that names its own project's scheduler is left to it."""
    for number, pod in enumerate(example.pods()):
        pod["metadata"]["name"] = "e"
        if example.left or pod["spec"].get("schedulerName") not in (None, "default-scheduler"):
            answer = mutate(review(pod), HERE)["response"]
            assert answer["allowed"]
            assert "patch" not in answer, "its scheduler's, or its device plugin's"
            pod["spec"].pop("schedulerName", None)
        if example.left:
            continue
        if isinstance(example.becomes, str):
            answer = mutate(review(pod), HERE)["response"]
            assert not answer["allowed"]
            assert example.becomes in answer["status"]["message"]
            assert "\n" not in answer["status"]["message"]
            continue
        made = patched(pod)
        assert validate(review(made), HERE)["response"]["allowed"]
        spec = pod["spec"] | {"containers": [{"name": one["name"]} for one in pod["spec"]["containers"]]}
        ours = {"metadata": {"name": "e", "annotations": in_full(example.becomes[number])}, "spec": spec}
        assert parse_pod(HERE.part(made)).ask == parse_pod(ours).ask


def test_each_example_is_there_once_and_the_page_counts_them() -> None:
    paths = Counter(path for one in EXAMPLES for path in one.paths)
    assert [path for path, times in paths.items() if times > 1] == []
    assert {path.partition(":")[0] for path in paths} == set(UPSTREAM)
    refused = sum(len(one.paths) for one in EXAMPLES if isinstance(one.becomes, str))
    said = " ".join(PAGE.read_text().split())
    assert f"Of {len(paths)} examples {refused} are refused" in said
