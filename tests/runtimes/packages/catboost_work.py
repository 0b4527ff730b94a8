"""CatBoost as it comes, whose kernels are in its wheel: what it learns on the virtual GPU, held against its CPU."""
import numpy
import pytest
from catboost import CatBoostClassifier, CatBoostRanker, CatBoostRegressor, Pool  # type: ignore

ROWS, GROUP = 2000, 20
RANDOM = numpy.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 12)).astype(numpy.float32)
Y = X[:, 0] * 2 + numpy.sin(X[:, 1] * 3) + X[:, 2] * X[:, 3] + RANDOM.normal(size=ROWS) * .1
# What both do alike: nothing by chance, and as many borders.
ALIKE = {"iterations": 40, "depth": 5, "learning_rate": 0.1, "boosting_type": "Plain", "bootstrap_type": "No",
         "border_count": 64, "random_strength": 0, "leaf_estimation_iterations": 1, "boost_from_average": False,
         "verbose": False, "allow_writing_files": False, "random_seed": 1}
GPU = {"task_type": "GPU", "devices": "0", "gpu_ram_part": 0.5}


def learned(kind, data, options, device):
    model = kind(**{**ALIKE, **options}, **device)
    model.fit(*data)
    return numpy.asarray(model.predict(data[0] if isinstance(data[0], Pool) else X), dtype=float).reshape(ROWS, -1)


def same(kind, data, **options):
    on_cpu, on_gpu = learned(kind, data, options, {}), learned(kind, data, options, GPU)
    if kind is CatBoostRanker:  # the order counts, and not what all have
        on_cpu, on_gpu = on_cpu - on_cpu.mean(), on_gpu - on_gpu.mean()
    assert numpy.std(on_cpu) > 0
    # A border may fall to the other side of a row or two.
    close = numpy.isclose(on_gpu, on_cpu, rtol=1e-3, atol=1e-3).all(axis=1)
    assert close.mean() > 0.98, f"{close.mean():.2%} of the rows are the same"


@pytest.mark.parametrize("grows", ["SymmetricTree", "Depthwise", "Lossguide"])
@pytest.mark.parametrize("score", ["L2", "Cosine"])
def test_trees(grows, score):
    same(CatBoostRegressor, (X, Y), grow_policy=grows, score_function=score)


@pytest.mark.parametrize(("loss", "method"), [("MAE", "Gradient"), ("MAE", "Exact"), ("Quantile:alpha=0.8", "Exact")])
def test_losses_of_regression(loss, method):
    same(CatBoostRegressor, (X, Y), loss_function=loss, leaf_estimation_method=method)


def test_two_classes():
    same(CatBoostClassifier, (X, (Y > 0).astype(int)))


def test_several_classes():
    options = {**ALIKE, "loss_function": "MultiClass"}
    del options["boost_from_average"]
    classes = numpy.digitize(Y, [-1.5, 0, 1.5])
    scores = []
    for device in ({}, GPU):
        model = CatBoostClassifier(**options, **device)
        model.fit(X, classes)
        scores.append(model.score(X, classes))
    assert scores[0] > 0.7 and abs(scores[0] - scores[1]) < 0.01, scores


@pytest.mark.parametrize("loss", ["QueryRMSE", "PairLogit", "QuerySoftMax"])
def test_rankings(loss):
    relevant = numpy.clip(numpy.digitize(Y, [-1, 0, 1]), 0, 3)
    pool = Pool(X, relevant, group_id=numpy.repeat(numpy.arange(ROWS // GROUP), GROUP))
    same(CatBoostRanker, (pool,), loss_function=loss)
