"""PyTorch as Debian has it: its operators and their gradients, each by its own samples of them, on the virtual GPU held
against the processor."""
import itertools

import pytest
import torch
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 8
OPERATORS = [operator for operator in common_methods_invocations.op_db
             if all(torch.float32 in operator.supported_dtypes(device) for device in ("cuda", "cpu"))]
# Its operators that draw by chance would have one seed always, and look like others: no two processors draw alike.
common_methods_invocations.wrapper_set_seed = lambda operator, *of, **named: operator(*of, **named)


def put(value, device):
    """A copy there of all tensors in it, since some operators write into what they are given."""
    def one(leaf):
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf
    return tree_map(one, value)


def call(operator, sample, device, seed):
    """What it was given, and what it gave."""
    torch.manual_seed(seed)
    of_operator, others, named = given = put((sample.input, sample.args, dict(sample.kwargs)), device)
    if isinstance(named.get("device"), str):
        named["device"] = device
    return given, operator(of_operator, *others, **named)


def result(operator, sample, device, seed=1):
    with torch.no_grad():
        return put(call(operator, sample, device, seed)[1], "cpu")


def gradients(operator, sample, device, seed=1):
    """Of all results' sum, by what it was given."""
    given, results = call(operator, sample, device, seed)
    sum(one.sum() for one in tree_leaves(results)
        if isinstance(one, torch.Tensor) and one.requires_grad).backward()
    return [one.grad.cpu() for one in tree_leaves(given) if isinstance(one, torch.Tensor) and one.grad is not None]


def differ(one, other):
    try:
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return str(error)
    except TypeError:  # results that are no numbers
        return "" if isinstance(one, type(other)) else f"{one} and {other}"
    return ""


def shapes(value):
    return tree_map(lambda leaf: leaf.shape if isinstance(leaf, torch.Tensor) else type(leaf), value)


def hold(operator, of_sample, samples):
    compared = 0
    for sample in itertools.islice(samples, SAMPLES):
        try:
            wanted, by_chance = of_sample(operator, sample, "cpu"), of_sample(operator, sample, "cpu", 2)
        except Exception:  # it is not for processors
            continue
        found = of_sample(operator, sample, "cuda")
        compared += 1
        if differ(wanted, by_chance):
            assert shapes(found) == shapes(wanted)
        else:
            assert not differ(found, wanted), differ(found, wanted)
    if not compared:
        pytest.skip("no sample that a processor takes")


def name_of(operator):
    return f"{operator.name}-{operator.variant_test_name}"


@pytest.mark.parametrize("operator", OPERATORS, ids=name_of)
def test_operator(operator):
    hold(operator, result, operator.sample_inputs("cpu", torch.float32))


@pytest.mark.parametrize("operator", [one for one in OPERATORS if one.supports_autograd], ids=name_of)
def test_gradient(operator):
    hold(operator, gradients, operator.sample_inputs("cpu", torch.float32, requires_grad=True))
