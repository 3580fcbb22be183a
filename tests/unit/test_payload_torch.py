from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from types import SimpleNamespace

import pytest
from payload_identity import assert_same, trip

from parl_lite import tensors
from parl_lite.errors import SerializationError
from parl_lite.payload import ARROW_WITH_SCHEMA, PICKLE_WITH_BUFFERS, Encoder

torch = pytest.importorskip("torch")

FLOAT8 = [name for name in tensors.STORAGE if name.startswith("float8") and hasattr(torch, name)]


@pytest.mark.parametrize("name", [name for name in tensors.STORAGE if name not in FLOAT8 and name != "complex32"])
def test_tensors_of_every_dtype_travel_by_arrow(name):
    value = {"x": torch.arange(6).reshape(2, 3).to(getattr(torch, name)), "y": torch.ones((), dtype=torch.float32)}
    assert Encoder().encode(value)[0] == ARROW_WITH_SCHEMA
    assert_same(trip(value, allow_pickle=False), value)


@pytest.mark.parametrize("name", FLOAT8)
def test_tensors_of_8_bit_floats_travel_by_arrow_and_by_pickle(name):
    tensor = torch.arange(5000).to(torch.uint8).view(getattr(torch, name))
    assert_same(trip([tensor], allow_pickle=False), [tensor])
    assert_same(trip([tensor, "text"]), [tensor, "text"])


@pytest.mark.parametrize("size", [3, 100_000])
def test_every_layout_of_a_tensor_keeps_its_values(size):
    base = torch.arange(2.0 * size).reshape(2, size)
    for tensor in (base, base.T, base[:, ::2], base[1], base[:0], base[0, 1], base[:1].expand(4, size), torch.ones(())):
        assert_same(trip(tensor), tensor)
        assert_same(trip([tensor, "text"]), [tensor, "text"])


def test_received_tensors_can_be_changed_in_place():
    for value in (torch.zeros(5000), [torch.zeros(5000), None]):
        received = trip(value)
        tensor = received if type(received) is torch.Tensor else received[0]
        tensor += 1
        assert tensor.sum() == 5000


def test_a_leaf_that_requires_grad_keeps_its_flag():
    value = {"w": torch.ones(3, requires_grad=True), "b": torch.zeros(3)}
    assert_same(trip(value), value)


def test_parameters_and_modules_can_be_trained_where_they_arrive():
    parameter = torch.nn.Parameter(torch.ones(3))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert_same(trip([parameter, frozen]), [parameter, frozen])
    module = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.BatchNorm1d(50))
    received = trip(module)
    assert_same(dict(received.state_dict()), dict(module.state_dict()))
    received(torch.ones(4, 50)).sum().backward()
    assert all(weight.grad is not None for weight in received.parameters())


def test_weights_lie_beside_the_pickle():
    state = torch.nn.Linear(100, 100).state_dict()
    assert type(state) is OrderedDict
    data = Encoder().encode(state)
    assert data[0] == PICKLE_WITH_BUFFERS
    assert len(data) < 4 * 100 * 101 + 1000
    assert_same(trip(state), state)


def test_a_non_leaf_that_requires_grad_is_refused_with_the_remedy():
    computed = torch.ones(3, requires_grad=True) * 2
    for value in (computed, {"loss": computed}, [computed, "x"]):
        with pytest.raises(SerializationError, match=r"^the result cannot be sent: .*\.detach\(\)"):
            Encoder().encode(value, what="the result")
    assert_same(trip(computed.detach()), computed.detach())


def test_a_tensor_on_another_device_is_refused_with_the_remedy():
    tensor = SimpleNamespace(shape=(2, 3), device=SimpleNamespace(type="cuda", __str__=lambda: "cuda:0"))
    with pytest.raises(SerializationError, match=r"\(2, 3\) lives on .*tensor\.cpu\(\)"):
        tensors.refuse_unsendable(tensor)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_tensor_is_refused_and_its_cpu_copy_travels():
    tensor = torch.ones(3, device="cuda")
    for value in (tensor, {"x": tensor}, torch.nn.Linear(2, 2).cuda()):
        with pytest.raises(SerializationError, match=r"\.cpu\(\)"):
            Encoder().encode(value)
    assert_same(trip(tensor.cpu()), tensor.cpu())


def test_tied_weights_stay_tied():
    layer = torch.nn.Linear(60, 60)
    module = torch.nn.Sequential(layer, torch.nn.ReLU(), layer)
    received = trip(module)
    assert received[0] is received[2]
    state = dict(module.state_dict())
    assert state["0.weight"] is not state["2.weight"]
    received = trip(state)
    received["0.weight"][0, 0] = 7
    assert received["2.weight"][0, 0] == 7
    assert received["0.bias"].data_ptr() != received["0.weight"].data_ptr()


def test_two_views_of_one_memory_that_are_not_the_same_tensor_keep_their_values():
    base = torch.arange(6.0)
    value = [base, base[:3], base.view(2, 3)]
    assert_same(trip(value), value)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")  # torch's own pickling of sparse tensors
def test_what_numpy_cannot_see_travels_as_torch_pickles_it():
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(trip(sparse).to_dense(), torch.eye(3))
    conjugated = torch.tensor([1 + 2j]).conj()
    assert torch.equal(trip([conjugated])[0], conjugated)
    assert trip(torch.empty(2, 3, device="meta")).shape == (2, 3)


def test_optimizers_and_generators_travel():
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.125)
    weight.sum().backward()
    optimizer.step()
    received = trip(optimizer.state_dict())
    assert received["param_groups"][0]["lr"] == 0.125
    assert_same(received["state"][0], optimizer.state_dict()["state"][0])


def test_sending_arrays_does_not_import_torch():
    program = (
        "import sys, numpy as np; from parl_lite.payload import Decoder, Encoder; "
        "print([Decoder().decode(Encoder().encode(v)) for v in (np.ones(1), [np.ones(1), 'x'], {'a': object})]); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, stdout=subprocess.DEVNULL)
