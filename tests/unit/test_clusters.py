"""The examples for clusters: well-formed, and every command line is one that the command itself takes."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from proofreel.core import ConfigError
from proofreel.eval.scoring import Share
from proofreel.score import _parser

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "clusters"


def words_of_score(text: str) -> list[str]:
    """The arguments of `proofreel score` in a text of shell."""
    words = shlex.split(text.replace("\\\n", " "))
    start = next(i for i, word in enumerate(words) if word in ("score", "proofreel/score.py"))
    return words[start + 1 :]


def test_the_batch_script_is_shell_and_its_command_is_taken():
    script = FOLDER / "score.sbatch"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    (line,) = (line for line in script.read_text().splitlines() if line.startswith("srun "))
    args = _parser().parse_args(words_of_score(line))
    assert str(args.out) == "$out"


def test_kuberays_job_names_groups_and_a_command_that_is_taken():
    job = yaml.safe_load((FOLDER / "score-rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    args = _parser().parse_args(words_of_score(job["spec"]["entrypoint"]))
    assert args.engine == "ray"
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for each in (job["spec"]["rayClusterSpec"]["headGroupSpec"], group):
        pod = each["template"]["spec"]
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_skypilots_task_runs_a_command_that_is_taken():
    task = yaml.safe_load((FOLDER / "score-sky.yaml").read_text())
    assert {"resources", "setup", "run"} <= set(task)
    assert _parser().parse_args(words_of_score(task["run"])).quiet


def test_ray_serves_configuration_names_an_application_that_takes_its_arguments(tmp_path, monkeypatch):
    from ray.serve.schema import ServeDeploySchema

    from proofreel.server import on_ray

    config = yaml.safe_load((FOLDER / "serve-config.yaml").read_text())
    (application,) = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == "proofreel.server.on_ray:app"
    args = {**application.args, "frame_cache": str(tmp_path)}
    monkeypatch.delenv("PROOFREEL_TOKEN", raising=False)
    bound = on_ray.app(args)._bound_deployment
    assert bound.name == "proofreel"
    settings = bound.init_args[2]
    assert (settings.token, settings.hosts, settings.queue) == ("change-me", ("judge.example.org",), 4096)
    scaling = bound._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 8)
    assert bound.ray_actor_options["num_gpus"] == 1
    assert bound._deployment_config.max_ongoing_requests == settings.queue  # so that the server's own 429 comes first
    monkeypatch.setenv("PROOFREEL_TOKEN", "from outside")
    assert on_ray.app({**args, "token": None})._bound_deployment.init_args[2].token == "from outside"
    monkeypatch.delenv("PROOFREEL_TOKEN")
    for wrong, reason in (
        ({**args, "replicas": 2}, "args: unknown key, got replicas"),
        ({"directory": "x"}, "args: required, got no frame_cache"),
        ({**args, "token": None}, "got no token; add it, set PROOFREEL_TOKEN, or say no_token: true"),
        ({**args, "number": 0}, "replicas: must be at least 1"),
        ({**args, "gpus_each": -1}, "gpus_each: must not be negative"),
    ):
        with pytest.raises(ConfigError, match=reason):
            on_ray.app(wrong)


@pytest.mark.parametrize(
    ("environment", "share"),
    [
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, Share(2, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Share(0, 1)),  # a batch script without srun: nobody else began
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "RANK": "1", "WORLD_SIZE": "3"}, Share(1, 3)),
        ({}, Share(0, 1)),
    ],
)
def test_slurms_step_numbers_the_processes_where_no_launcher_does(monkeypatch, environment, share):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Share.of_launcher() == share
