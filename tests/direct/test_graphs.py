"""Long graphs of two virtual GPUs take turns in segments, and compute what they compute whole."""
from benchmarks.shares_trace import Tracer
from lab.cuda_programs import Program
from lab.daemon import Daemon, only_one
from lab.paths import REPO
from lab.started import Started

SECONDS = 3
QUANTUM_US = 200     # the graph has 80 kernels and takes many of these
SEGMENTS_LEAST = 4   # time slices for each launch, on average: the first launches are whole


def test_graphs_go_in_segments(device):
    program = Program(REPO / "tests/direct/graphs.cu").compile()
    names = ["graphs-one", "graphs-two"]
    with only_one():
        daemon = Daemon(device, "band+", name="graphs-test", tables={"scheduler": {"quantum_us": QUANTUM_US}})
        try:
            for name in names:
                daemon.create(name, 50)
            both = [Started(program, SECONDS, variables=daemon.program_environment(name)) for name in names]
            for process in both:
                process.first_line("ready")
            tracer = Tracer(daemon)
            tracer.start(SECONDS)
            for process in both:
                process.say()
            launches = []
            for process in both:
                status, output = process.finish()
                assert status == 0, output
                launches.append(int(output.split()[-1]))
            traced = tracer.take(names)
        finally:
            daemon.end()
    assert traced is not None
    for count, slices in zip(launches, traced):
        if device != "soft":
            continue  # where the hardware's time slices hold the shares the gates are open, and graphs go whole
        compute = [each for each in slices if each.engine == "compute"]
        assert count > 3 and len(compute) >= SEGMENTS_LEAST * count, f"{len(compute)} time slices for {count} launches"
