"""Files: bit for bit back, whole or not at all, and nothing but our own intact files."""

import json
import os
import sys

import numpy as np
import pytest

import autoq as aq
from autoq import io, nn
from autoq.devices import device_of, to_host
from autoq.errors import ArgumentError, DeviceError, DTypeError, FileFormatError, StateError

SHAPES = [(5, 70), (3,), (2, 3, 64), (0, 32), (4, 0)]


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed(name, *shape):
    return aq.QTensor.quantize(values(*shape), aq.scheme(name))


def round_trip(tmp_path, state, **options):
    path = tmp_path / "state.safetensors"
    io.save(path, state, **options)
    return io.load(path)


def shapes_for(name):
    rank = len(aq.scheme(name).block or ())
    return [shape for shape in SHAPES if len(shape) >= rank]


@pytest.mark.parametrize("name", aq.CATALOG)
def test_every_scheme_comes_back_bit_for_bit(name, tmp_path):
    state = {f"q{i}": packed(name, *shape) for i, shape in enumerate(shapes_for(name))}
    loaded = round_trip(tmp_path, state)
    assert list(loaded) == list(state)
    for key, q in state.items():
        assert loaded[key].scheme == q.scheme
        assert loaded[key].same_bits(q)
        assert loaded[key].words.tobytes() == np.ascontiguousarray(q.words).tobytes()
        np.testing.assert_array_equal(loaded[key].dequantize(), q.dequantize())


@pytest.mark.parametrize(
    "changes",
    [{"scale": "f16"}, {"scale": "bf16", "block": (48,)}, {"rounding": "stochastic"}, {"block": None}],
)
def test_schemes_that_are_in_no_catalog_come_back_too(changes, tmp_path):
    scheme = aq.int4.replace(**changes)
    draw = aq.Generator(0).draw() if scheme.rounding == "stochastic" else None
    q = aq.QTensor.quantize(values(5, 70), scheme, draw=draw)
    loaded = round_trip(tmp_path, {"q": q})["q"]
    assert loaded.scheme == scheme
    assert loaded.same_bits(q)


@pytest.mark.parametrize(
    "view",
    [
        lambda q: q.T,
        lambda q: q[::-1],
        lambda q: q[1:4:2, 32:],
        lambda q: q.broadcast_to((2, 6, 96)),
    ],
)
def test_views_are_saved_contiguous_and_with_their_bits(view, tmp_path):
    q = view(packed("mxfp8", 6, 96))
    loaded = round_trip(tmp_path, {"q": q})["q"]
    assert loaded.shape == q.shape
    assert loaded.same_bits(q)
    assert loaded.words.flags.c_contiguous
    np.testing.assert_array_equal(loaded.dequantize(), q.dequantize())


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int8", "uint32", "uint8", "bool"]
)
def test_dense_arrays_keep_dtype_shape_and_bits(dtype, tmp_path):
    kind = aq.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    state = {str(shape): (values(*shape) * 9).astype(kind) for shape in [(3, 4), (), (0, 2), (1,)]}
    state["strided"] = (values(6, 8) * 9).astype(kind)[::2, ::-1].T
    for key, array in round_trip(tmp_path, state).items():
        assert array.dtype == kind
        assert array.shape == state[key].shape
        assert array.tobytes() == state[key].tobytes()


def test_infinities_and_the_bits_of_nan_survive(tmp_path):
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0x80000000], np.uint32).view(np.float32)
    assert round_trip(tmp_path, {"x": bits})["x"].tobytes() == bits.tobytes()
    q = aq.QTensor.quantize(np.full((2, 32), np.nan, np.float32), aq.mxfp8)
    assert round_trip(tmp_path, {"q": q})["q"].same_bits(q)


def test_tensors_are_saved_as_what_they_store(tmp_path):
    x = aq.tensor(values(4, 32), requires_grad=True)
    loaded = round_trip(tmp_path, {"x": x, "q": x.quantize(aq.nvfp4)})
    np.testing.assert_array_equal(loaded["x"], x.numpy())
    assert loaded["q"].same_bits(x.quantize(aq.nvfp4).value.to("cpu"))


def test_a_state_is_loaded_to_a_device(tmp_path, device):
    q, path = packed("nvfp4", 4, 32), tmp_path / "state.safetensors"
    io.save(path, {"x": aq.tensor(values(4, 32)), "q": q.to(device), "n": aq.tensor(3)})
    loaded = io.load(path, device=device)
    assert [device_of(loaded[name]) for name in ("x", "n")] == [device, device]
    assert loaded["q"].device == device
    assert loaded["q"].to("cpu").same_bits(q)
    np.testing.assert_array_equal(to_host(loaded["x"]), values(4, 32))
    with pytest.raises(DeviceError):
        io.load(path, device="mars")


def test_a_model_on_a_device_is_saved_and_loaded(tmp_path, device):
    a, b = (nn.Linear(32, 8, rng=aq.Generator(seed)).to(device) for seed in (0, 1))
    io.save(tmp_path / "model.safetensors", a.state_dict())
    io.load_into(b, tmp_path / "model.safetensors")
    assert b.weight.device == device
    np.testing.assert_array_equal(a.weight.numpy(), b.weight.numpy())


def test_loaded_arrays_can_be_written_to(tmp_path):
    loaded = round_trip(tmp_path, {"x": values(3)})["x"]
    loaded[0] = 1
    assert loaded[0] == 1


def test_metadata_come_back(tmp_path):
    about = {"epoch": 3, "names": ["a", "b"], "nested": {"x": None}, "text": "ü"}
    round_trip(tmp_path, {"x": values(3)}, metadata=about)
    assert io.load_metadata(tmp_path / "state.safetensors") == about


def test_an_empty_state_is_a_state(tmp_path):
    assert round_trip(tmp_path, {}) == {}


def test_packed_tensors_take_their_packed_size_on_disk(tmp_path):
    path = tmp_path / "q.safetensors"
    io.save(path, {"q": packed("nvfp4", 512, 512)})
    assert path.stat().st_size < 512 * 512 * 4.5 / 8 + 1500


def test_models_and_optimizers_come_back(tmp_path):
    def build(seed):
        rng = aq.Generator(seed)
        model = nn.Sequential(nn.Linear(32, 16, rng=rng, dtype=aq.bfloat16), nn.LayerNorm(16))
        model.register_buffer("scheme", aq.tensor(np.ones((2, 32), np.float32)).quantize(aq.mxfp4))
        return model, aq.optim.AdamW(model, lr=0.1)

    (model, optimizer), (other, resumed) = build(0), build(1)
    for m, o in ((model, optimizer), (other, resumed)):
        m(aq.tensor(values(4, 32))).sum().backward()
        o.step()
    io.save(tmp_path / "model.safetensors", model.state_dict())
    io.save(tmp_path / "optimizer.safetensors", optimizer.state_dict())
    io.load_into(other, tmp_path / "model.safetensors")
    resumed.load_state_dict(io.load(tmp_path / "optimizer.safetensors"))
    x = aq.tensor(values(4, 32))
    np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())
    assert other.scheme.value.same_bits(model.scheme.value)
    for key, value in optimizer.state_dict().items():
        np.testing.assert_array_equal(resumed.state_dict()[key], value)


class TestRefusal:
    """What is no intact file of ours is refused, and a model is left as it was."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "state.safetensors"
        io.save(path, {"weight": packed("nvfp4", 3, 40), "bias": values(3)}, metadata={"epoch": 1})
        return path

    def test_a_file_truncated_at_any_length_is_refused(self, path):
        data = path.read_bytes()
        for length in range(0, len(data), 7):
            path.write_bytes(data[:length])
            with pytest.raises(FileFormatError, match=rf"\({length} bytes\)(.|\n)*aq.io.save"):
                io.load(path)

    def test_any_flipped_byte_is_refused_or_harmless(self, path):
        data, state = path.read_bytes(), io.load(path)
        refused = 0
        for position in range(len(data)):
            changed = bytearray(data)
            changed[position] ^= 1 << position % 8
            path.write_bytes(changed)
            try:
                loaded = io.load(path)
            except FileFormatError:
                refused += 1
            else:
                assert loaded["weight"].same_bits(state["weight"])
                np.testing.assert_array_equal(loaded["bias"], state["bias"])
        assert refused > 0.95 * len(data)

    def test_appended_bytes_are_refused(self, path):
        path.write_bytes(path.read_bytes() + b"\0")
        with pytest.raises(FileFormatError, match="no intact safetensors file"):
            io.load(path)

    @pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"PK\x03\x04" + b"\0" * 60, b"{}" * 40])
    def test_other_kinds_of_files_are_refused(self, content, path):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="no intact safetensors file"):
            io.load(path)

    @pytest.mark.parametrize("header", [None, {"format": "pt"}])
    def test_a_foreign_safetensors_file_is_refused_and_its_reader_named(self, header, path):
        from safetensors.numpy import save_file

        save_file({"weight": values(3)}, path, metadata=header)
        with pytest.raises(FileFormatError, match=r"foreign safetensors file(.|\n)*numpy.load_file"):
            io.load(path)

    def test_a_file_of_a_later_version_is_refused(self, path):
        from safetensors.numpy import save_file

        about = json.dumps({"version": 2, "packed": {}, "metadata": {}})
        save_file({"weight": values(3)}, path, metadata={"format": "autoq", "autoq": about, "crc32": "0"})
        with pytest.raises(FileFormatError, match="format version 2, this autoq reads 1"):
            io.load(path)

    def test_a_scheme_that_is_not_registered_here_is_refused_by_name(self, path, monkeypatch):
        from autoq.io import packed as records

        original = records.disassemble

        def renamed(name, q):
            arrays, record = original(name, q)
            return arrays, {**record, "scheme": {**record["scheme"], "element": "e9m9"}}

        monkeypatch.setattr("autoq.io.state.disassemble", renamed)
        io.save(path, {"weight": packed("mxfp8", 2, 32)})
        monkeypatch.undo()
        with pytest.raises(FileFormatError, match=r"'weight' can't be put together(.|\n)*e9m9"):
            io.load(path)

    def test_a_model_is_left_as_it_was(self, path):
        model = nn.Linear(40, 3, rng=aq.Generator(0))
        before = model.state_dict()
        with pytest.raises(StateError, match=r"'weight' is nvfp4 \(3, 40\), the model's is float32"):
            io.load_into(model, path)
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(FileFormatError, match="no intact safetensors file"):
            io.load_into(model, path)
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value, before[name])

    def test_a_missing_file_stays_a_missing_file(self, path):
        with pytest.raises(FileNotFoundError):
            io.load(path.parent / "nothing.safetensors")


class TestWriting:
    """A file is written as a whole or not at all."""

    def test_what_can_not_be_saved_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "state.safetensors"
        io.save(path, {"x": values(3)})
        before = path.read_bytes()
        with pytest.raises(DTypeError, match="'y' is complex128"):
            io.save(path, {"x": values(3), "y": np.ones(2, complex)})
        with pytest.raises(DTypeError, match="'y' is <U4"):
            io.save(path, {"y": "text"})
        with pytest.raises(ArgumentError, match=r"metadata can't be written as JSON(.|\n)*tolist"):
            io.save(path, {"x": values(3)}, metadata={"a": values(3)})
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["state.safetensors"]

    def test_a_crash_while_writing_leaves_the_old_file_and_no_rest(self, tmp_path, monkeypatch):
        path = tmp_path / "state.safetensors"
        io.save(path, {"x": values(3)})
        before = path.read_bytes()

        def full(handle):
            raise OSError("no space left on device")

        monkeypatch.setattr("autoq.io.atomic.os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            io.save(path, {"x": values(30)})
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["state.safetensors"]

    def test_a_replaced_file_keeps_its_permissions(self, tmp_path):
        path = tmp_path / "state.safetensors"
        io.save(path, {"x": values(3)})
        assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
        path.chmod(0o600)
        io.save(path, {"x": values(3)})
        assert path.stat().st_mode & 0o777 == 0o600

    def test_names_that_collide_with_parts_are_refused(self, tmp_path):
        state = {"q": packed("mxfp8", 2, 32), "q/words": values(2)}
        with pytest.raises(ArgumentError, match="two entries are stored as 'q/words'"):
            io.save(tmp_path / "x", state)
        with pytest.raises(ArgumentError, match="two entries are stored as 'q/words'"):
            io.save(tmp_path / "x", dict(reversed(state.items())))

    def test_without_safetensors_the_extra_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "safetensors", None)
        with pytest.raises(ImportError, match=r"safetensors(.|\n)*pip install -e '\.\[train\]'"):
            io.save(tmp_path / "x", {"x": values(3)})


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
