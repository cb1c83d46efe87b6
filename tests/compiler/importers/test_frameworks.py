"""The frameworks' own models, where the frameworks are installed; each is compared with its own answers."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import edgekit
from edgekit.errors import ModelError, UsageError
from tests.compiler.importers.right_import import is_right

pytestmark = pytest.mark.needs_ort


class TestPyTorch:
    torch: Any

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("onnxscript")
        self.torch = pytest.importorskip("torch")

    def module(self) -> Any:
        nn = self.torch.nn
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3))

    def test_a_module_in_training_mode(self) -> None:
        module, example = self.module().train(), (self.torch.zeros(1, 1, 8, 8),)
        found = edgekit.import_model(module, example_inputs=example)
        is_right(found, "PyTorch", ["output"])
        assert module.training
        assert b".py" not in found.imported.onnx, "paths of the user's sources"

    def test_names_of_nested_inputs_and_outputs(self) -> None:
        torch = self.torch

        class Nested(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, image: Any, scale: Any) -> Any:
                return {"scores": image * scale, "parts": (image + 1, scale - 1)}

        example = (torch.ones(1, 3), torch.ones(3))
        found = edgekit.import_model(Nested(), example_inputs=example)
        is_right(found, "PyTorch", ["scores", "parts_0", "parts_1"])
        assert [spec.name for spec in found.inputs] == ["image", "scale"]

    def test_files(self, tmp_path: Path) -> None:
        torch, example = self.torch, (self.torch.zeros(1, 1, 8, 8),)
        module = self.module().eval()
        torch.export.save(torch.export.export(module, example), tmp_path / "m.pt2")
        is_right(edgekit.import_model(tmp_path / "m.pt2"), "PyTorch", ["output"])
        torch.jit.save(torch.jit.trace(module, example), tmp_path / "m.pt")
        with pytest.raises(
            UsageError, match=r"^m\.pt: TorchScript does not store the shapes of inputs\. Add "
        ):
            edgekit.import_model(tmp_path / "m.pt")
        is_right(edgekit.import_model(tmp_path / "m.pt", shapes={"": (1, 1, 8, 8)}), "PyTorch", ["output"])
        torch.save(module, tmp_path / "m.pth")
        found = edgekit.import_model(tmp_path / "m.pth", shapes={"": (1, 1, 8, 8)}, trust_pickle=True)
        is_right(found, "PyTorch", ["output"])
        torch.save(module.state_dict(), tmp_path / "weights.pth")
        with pytest.raises(ModelError, match=r"^weights\.pth contains weights but no graph"):
            edgekit.import_model(tmp_path / "weights.pth")

    def imports(self, forward: Any, *example: Any) -> Any:
        """Import a module of one function, and compare it."""
        torch = self.torch

        class Module(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, *inputs: Any) -> Any:
                return forward(*inputs)

        found = edgekit.import_model(Module(), example_inputs=example)
        is_right(found, "PyTorch", ["output"])
        return [node.op_type for node in ModelProto.FromString(found.imported.onnx).graph.node]

    @pytest.mark.parametrize(
        "assign",
        [
            lambda y, torch: y.__setitem__(y < 0, -1),
            lambda y, torch: y.__setitem__(y[:, :, 0] > 0, torch.arange(5.0)),
            lambda y, torch: y.__setitem__((slice(None), y[0, :, 0] > 0), 3.0),
            lambda y, torch: y.masked_fill_(y > 1, 0.5),
            lambda y, torch: y.index_put_((y > 0,), torch.tensor(7.0)),
            lambda y, torch: y.__setitem__(y > 0, y[y > 0] * 2 + torch.relu(y[y > 0])),
        ],
    )
    def test_assignment_by_a_mask_has_static_shapes(self, assign: Any) -> None:
        def forward(x: Any) -> Any:
            y = x.clone()
            assign(y, self.torch)
            return y

        ops = self.imports(forward, self.torch.randn(2, 4, 5))
        assert "Where" in ops
        assert "NonZero" not in ops

    @pytest.mark.parametrize(
        ("shape", "size"),
        [((1, 2, 6, 6), (3, 2)), ((1, 2, 7, 5), (3, 7)), ((1, 2, 9), 4), ((1, 2, 4, 6, 5), (2, 4, 3))],
    )
    def test_adaptive_max_pooling(self, shape: tuple[int, ...], size: Any) -> None:
        pool = getattr(self.torch.nn.functional, f"adaptive_max_pool{len(shape) - 2}d")
        self.imports(lambda x: pool(x, size), self.torch.randn(shape))
        with pytest.raises(
            ModelError, match=r"return_indices=True has no ONNX form: leave return_indices out$"
        ):
            self.imports(lambda x: pool(x, size, return_indices=True), self.torch.randn(shape))

    @pytest.mark.parametrize("ends", [(-128, 127), (-127, 127), (0, 255), (0, 15)])
    def test_fake_quantization(self, ends: tuple[int, int]) -> None:
        torch, x = self.torch, self.torch.randn(1, 3, 4, 4)
        zero, scales = max(ends[0], 0), torch.tensor([0.02, 0.03, 0.05])
        ops = self.imports(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.03, zero, *ends), x)
        assert ops[-2:] == ["QuantizeLinear", "DequantizeLinear"]
        zeros = torch.full((3,), zero, dtype=torch.int32)
        self.imports(lambda x: torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, *ends), x)

    def test_fake_quantization_of_weights_in_a_file(self, tmp_path: Path) -> None:
        """With a gradient it is decomposed into operators whose shapes torch 2.13 lacks."""
        torch, x = self.torch, self.torch.randn(1, 3, 8, 8)

        class Trained(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.conv = torch.nn.Conv2d(3, 4, 3)
                self.register_buffer("zeros", torch.zeros(4, dtype=torch.int32))

            def forward(self, x: Any) -> Any:
                scale = self.conv.weight.abs().amax((1, 2, 3)).detach() / 127
                weight = torch.fake_quantize_per_channel_affine(
                    self.conv.weight, scale, self.zeros, 0, -128, 127
                )
                return torch.nn.functional.conv2d(x, weight, self.conv.bias)

        torch.export.save(torch.export.export(Trained().eval(), (x,)), tmp_path / "m.pt2")
        is_right(edgekit.import_model(tmp_path / "m.pt2"), "PyTorch", ["output"])

    @pytest.mark.parametrize("fused", [False, True])
    def test_modules_of_prepare_qat(self, fused: bool) -> None:
        torch, x = self.torch, self.torch.randn(1, 3, 8, 8)
        quantization = torch.ao.quantization
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).train()
        plain = quantization.QConfig(
            quantization.default_fake_quant, quantization.default_per_channel_weight_fake_quant
        )
        module.qconfig = quantization.get_default_qat_qconfig("fbgemm") if fused else plain
        module = quantization.prepare_qat(module)
        module(x)
        with pytest.raises(ModelError, match=r"its observers are on or its fake quantization is off"):
            edgekit.import_model(module.eval(), example_inputs=(x,))
        module.apply(quantization.disable_observer)
        found = edgekit.import_model(module, example_inputs=(x,))
        is_right(found, "PyTorch", ["output"])
        assert "forward" not in vars(module[0].weight_fake_quant)

    def test_what_torch_cannot_export(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
        torch = self.torch

        class Broken(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                raise RuntimeError("broken")

        with pytest.raises(ModelError, match=r"^Broken: torch\.export can't export it: ") as error:
            edgekit.import_model(Broken(), example_inputs=(torch.zeros(3),))
        assert str(error.value).endswith(f"the full message is in {tmp_path / 'imports' / 'Broken.txt'}")
        with pytest.raises(UsageError, match=r"^Broken: torch\.export needs example inputs"):
            edgekit.import_model(Broken())

    def test_the_mask_of_a_transformer(self) -> None:
        torch = self.torch

        class Decoder(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layers = torch.nn.Transformer(8, 2, 1, 1, 8, batch_first=True)

            def forward(self, source: Any, target: Any) -> Any:
                mask = torch.nn.Transformer.generate_square_subsequent_mask(target.shape[1])
                return self.layers(source, target, tgt_mask=mask)

        detect = torch.nn.modules.transformer._detect_is_causal_mask
        example = (torch.rand(1, 5, 8), torch.rand(1, 4, 8))
        is_right(edgekit.import_model(Decoder(), example_inputs=example), "PyTorch", ["output"])
        assert torch.nn.modules.transformer._detect_is_causal_mask is detect

    def test_attention_with_strides_of_its_own(self) -> None:
        """SAM's: with gradients, torch.onnx decomposes it into other strides than those that were traced."""
        transformers = pytest.importorskip("transformers")
        config = transformers.SamVisionConfig(
            hidden_size=32, output_channels=16, num_hidden_layers=1, num_attention_heads=2, image_size=64,
            patch_size=8, window_size=4, global_attn_indexes=[0], mlp_dim=64,
        )  # fmt: skip
        example = {"pixel_values": self.torch.rand(1, 3, 64, 64)}
        found = edgekit.import_model(transformers.SamVisionModel(config).eval(), example_inputs=example)
        assert all(error.within_limit for error in found.compared.outputs.values())

    def test_a_check_of_values_is_exported(self) -> None:
        """Networks of transformers have such checks; torch.onnx lacks a form of the operator."""
        torch = self.torch

        class Checked(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                return torch.where(torch.ops.aten._is_all_true(x > 0), x, -x)

        for values in ([1.0, 2.0], [1.0, -2.0]):  # the examples are compared
            found = edgekit.import_model(Checked(), example_inputs=(torch.tensor(values),))
            is_right(found, "PyTorch", ["output"])

    def test_a_branch_on_a_value(self) -> None:
        torch = self.torch

        class Branch(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                return x if x.sum() > 0 else x - 1

        with pytest.raises(ModelError) as error:
            edgekit.import_model(Branch(), example_inputs=(torch.zeros(3),))
        assert re.fullmatch(
            r"Branch: a branch or a size depends on the values of a tensor \(test_frameworks\.py, line "
            r"\d+\), which torch\.export can't trace: write the branch with torch\.where, or keep that part "
            r"outside the module",
            str(error.value),
        )

    def test_sequences_packed_by_their_lengths(self) -> None:
        torch = self.torch

        class Packed(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.gru = torch.nn.GRU(4, 4, bidirectional=True, batch_first=True)

            def forward(self, x: Any, lengths: Any) -> Any:
                rnn = torch.nn.utils.rnn
                packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
                return rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]

        example = (torch.zeros(1, 5, 4), torch.tensor([5]))
        with pytest.raises(ModelError) as error:
            edgekit.import_model(Packed(), example_inputs=example)
        assert str(error.value) == (
            "Packed: packs its sequences (pack_padded_sequence), which torch.export can't trace: pass the "
            "padded sequences to the recurrent layer as they are, in a copy of forward for the export"
        )

    def test_models_of_transformers_that_write_text(self) -> None:
        transformers = pytest.importorskip("transformers")
        torch, sizes = self.torch, {"vocab_size": 50, "num_layers": 1, "num_heads": 4}
        ids = torch.ones(1, 12, dtype=torch.long)
        t5 = transformers.T5Config(d_model=8, d_kv=2, d_ff=8, decoder_start_token_id=0, **sizes)
        model = transformers.T5ForConditionalGeneration(t5)
        with pytest.raises(ModelError) as error:
            edgekit.import_model(model, example_inputs={"input_ids": ids, "decoder_input_ids": ids})
        assert str(error.value) == (
            "T5ForConditionalGeneration: is an encoder-decoder; EdgeKit builds whisper, moonshine, t5, mt5, "
            "bart, marian from folders (save_pretrained); to build its encoder, pass that module from "
            "Python: edgekit.build(model.get_encoder(), "
            "example_inputs=..., targets=[...])"
        )
        encoder = edgekit.import_model(model.get_encoder(), example_inputs={"input_ids": ids})
        is_right(encoder, "PyTorch", ["last_hidden_state"])
        assert model.config._attn_implementation == "sdpa"
        gpt = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2)
        )
        with pytest.raises(ModelError, match=r"^GPT2LMHeadModel: is a language model: save it with save_pre"):
            edgekit.import_model(gpt, example_inputs={"input_ids": ids})
        gpt.config.use_cache = False
        is_right(edgekit.import_model(gpt, example_inputs={"input_ids": ids}), "PyTorch", ["logits"])


class TestKeras:
    keras: Any

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("jax2onnx")
        monkeypatch.setenv("KERAS_BACKEND", "jax")
        self.keras = pytest.importorskip("keras")

    def test_a_model_and_its_file(self, tmp_path: Path) -> None:
        layers = self.keras.layers
        given = self.keras.Input((8, 8, 1), name="image")
        x = layers.MaxPooling2D()(layers.Conv2D(4, 3, activation="relu")(given))
        scores = layers.Dense(3, name="scores")(layers.Flatten()(x))
        model = self.keras.Model(given, {"scores": scores})
        is_right(edgekit.import_model(model), "Keras", ["scores"])
        model.save(tmp_path / "m.keras")
        found = edgekit.import_model(tmp_path / "m.keras")
        is_right(found, "Keras", ["scores"])
        assert [str(spec) for spec in found.inputs] == ["image float32 1x8x8x1"]

    def test_code_in_a_file_is_refused(self, tmp_path: Path) -> None:
        given = self.keras.Input((4,))
        model = self.keras.Model(given, self.keras.layers.Lambda(lambda x: x * 2)(given))
        model.save(tmp_path / "m.keras")
        with pytest.raises(ModelError, match=r"^m\.keras: contains Python code \(a Lambda layer\)"):
            edgekit.import_model(tmp_path / "m.keras")


class TestJax:
    jax: Any

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("jax2onnx")
        self.jax = pytest.importorskip("jax")

    def test_functions(self) -> None:
        def network(features: Any, bias: Any) -> Any:
            return self.jax.nn.softmax(features @ self.jax.numpy.ones((4, 3)) + bias)

        examples = (np.zeros((1, 4), np.float32), np.zeros(3, np.float32))
        for function in (network, self.jax.jit(network)):
            found = edgekit.import_model(function, example_inputs=examples)
            is_right(found, "JAX", ["output"])
            assert [spec.name for spec in found.inputs] == ["features", "bias"]

    def test_a_function_without_examples(self) -> None:
        with pytest.raises(UsageError, match=r"^<lambda>: JAX needs example inputs to trace a function"):
            edgekit.import_model(lambda x: x)


class TestScikitLearn:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("skl2onnx")
        pytest.importorskip("sklearn")
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((60, 4)).astype(np.float32)
        self.y = self.x[:, :3].argmax(1)

    @pytest.mark.parametrize("names", [False, True])
    @pytest.mark.parametrize("kind", ["linear", "svc", "forest", "neighbours", "pipeline"])
    def test_classifiers(self, kind: str, names: bool) -> None:
        from sklearn import ensemble, linear_model, neighbors, pipeline, preprocessing, svm

        estimator = {
            "linear": linear_model.LogisticRegression(),
            "svc": svm.SVC(),
            "forest": ensemble.RandomForestClassifier(5),
            "neighbours": neighbors.KNeighborsClassifier(3),
            "pipeline": pipeline.make_pipeline(preprocessing.MinMaxScaler(), svm.LinearSVC()),
        }[kind]
        estimator.fit(self.x, np.array(["ant", "bee", "cat"])[self.y] if names else self.y)
        found = edgekit.import_model(estimator)
        is_right(found, "scikit-learn", ["label", "probabilities"])
        notes = ["label is an index into the classes ant, bee, cat"] if names else []
        assert list(found.imported.notes) == notes

    def test_regressors_and_transformers(self) -> None:
        from sklearn import decomposition, linear_model

        is_right(
            edgekit.import_model(linear_model.Ridge().fit(self.x, self.x[:, 0])), "scikit-learn", ["variable"]
        )
        is_right(edgekit.import_model(decomposition.PCA(2).fit(self.x)), "scikit-learn", ["variable"])
        with pytest.raises(ModelError, match=r"^Ridge is not fitted: fit it first$"):
            edgekit.import_model(linear_model.Ridge())

    def test_a_trusted_pickle(self, tmp_path: Path) -> None:
        from sklearn import linear_model

        path = tmp_path / "m.pkl"
        path.write_bytes(pickle.dumps(linear_model.LogisticRegression().fit(self.x, self.y)))
        is_right(edgekit.import_model(path, trust_pickle=True), "scikit-learn", ["label", "probabilities"])
        path.write_bytes(pickle.dumps({"a": 1}))
        with pytest.raises(ModelError, match=r"^m\.pkl contains a builtins\.dict, which is not a"):
            edgekit.import_model(path, trust_pickle=True)
