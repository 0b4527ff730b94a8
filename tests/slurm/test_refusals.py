"""What Slurm's users are told: what is wrong, and what to do."""
import pytest

ONE = ["--gres=vgpu:1", "--vgpu=memory=512M"]


@pytest.mark.parametrize(("words", "said"), [
    (["--gres=vgpu:1"], "nothing how large: add --vgpu=memory=SIZE"),
    (["--vgpu=memory=512M"], "nothing how many: add --gres=vgpu:1"),
    (["--gres=vgpu:1", "--vgpu=memory=512M,compuet=30"], "'compuet' is not known; did you mean 'compute'?"),
    (["--gres=vgpu:1", "--vgpu=memory=512M,compute=30%"], "must be a whole number"),
    (["--gres=vgpu:1", "--vgpu=memory=512M,compute=300"], "compute"),
    (["--gres=vgpu:1", "--vgpu=compute=30"], "give at least 16.0 MiB, as in memory=8G"),
    (["--gres=vgpu:1", "--vgpu=memory"], "'memory' is not WORD=VALUE"),
    (["--gres=vgpu:1", "--vgpu=memory=512M,priority=100"], "'priority' is not known"),
    (["--gres=vgpu:1,vgpumem:1M", "--vgpu=memory=512M"], "memory and shares are asked for by --vgpu"),
    (["--gres=vgpu:99", "--vgpu=memory=512M"], "N from 1 to 16"),
    (["--gres=vgpu:1", "--vgpu=memory=512G"], "Requested node configuration is not available"),
])
def test_a_wrong_request_is_refused_before_it_is_a_job(cluster, words, said):
    done = cluster.try_("srun", *words, "true")
    assert done.returncode != 0
    assert said in done.stdout


def test_what_a_job_has_cannot_be_changed(cluster):
    """slurmctld goes on."""
    cluster.run("sbatch", "--hold", *ONE, "--wrap", "true")
    job = cluster.run("squeue", "--noheader", "--format=%A").strip()
    done = cluster.try_("scontrol", "update", f"JobId={job}", "Gres=vgpu:2")
    assert done.returncode != 0
    assert "Invalid generic resource" in done.stdout


def test_a_node_that_promises_more_than_it_has_says_so(cluster):
    """The job fails with vgpud's reason; the node stays in use."""
    cluster.vgpuctl("n0", "create", "other", "--memory", "4000M")
    try:
        done = cluster.try_("srun", "--nodelist=n0", *ONE, "true")
        assert done.returncode != 0
        assert "n0 refused the job's virtual GPU" in done.stdout and "compare `bandsaw-slurm gres`" in done.stdout
        assert cluster.state("n0") in ("idle", "completing")
    finally:
        cluster.vgpuctl("n0", "destroy", "other")
