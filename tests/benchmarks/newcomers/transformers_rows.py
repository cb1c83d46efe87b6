"""Models of transformers with random weights, as modules with the example of their tokenizer or processor,
and
as folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.newcomers.rows import Made, Row
from tests.benchmarks.newcomers.torch_modules import arrays, image, module_row, outputs

FRAMEWORK = "transformers"
WORDS = 300
TINY = {
    "vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128,
}  # fmt: skip
VIT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 64,
}


def texts(length: int = 24, padded: int = 5, kinds: bool = False) -> Callable[[], dict[str, Any]]:
    """Return a maker of what a tokenizer returns: ids, and the mask of a text that is padded at its end."""

    def make() -> dict[str, Any]:
        import torch

        ids = torch.randint(5, WORDS - 2, (1, length))
        mask = torch.ones(1, length, dtype=torch.long)
        ids[:, length - padded :], mask[:, length - padded :] = 1, 0
        more = {"token_type_ids": torch.zeros(1, length, dtype=torch.long)} if kinds else {}
        return {"input_ids": ids, **more, "attention_mask": mask}

    return make


def pictures(size: int = 64) -> Callable[[], dict[str, Any]]:
    return lambda: {"pixel_values": image(size)()[0]}


def sounds(samples: int = 8000) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        import torch

        walk = torch.randn(1, samples).cumsum(-1)
        return {"input_values": walk / walk.abs().max()}

    return make


def model(name: str, config: str, **settings: Any) -> Callable[[], Any]:
    """Return a maker of the class ``name`` with random weights."""

    def make() -> Any:
        import transformers

        built = getattr(transformers, name)(getattr(transformers, config)(**settings))
        return built.eval()

    return make


def rows() -> Iterator[Row]:
    def row(label: str, made: Any, inputs: Any, **rest: Any) -> Row:
        return module_row(FRAMEWORK, label, made, inputs, "Python", **rest)

    yield row("BERT, sentence classifier", model("BertForSequenceClassification", "BertConfig", **TINY),
              texts(kinds=True), known=True)  # fmt: skip
    yield row("DistilBERT, answers in a text", model(
        "DistilBertForQuestionAnswering", "DistilBertConfig", vocab_size=WORDS, dim=64, n_layers=2, n_heads=4,
        hidden_dim=128), texts())  # fmt: skip
    yield row("RoBERTa, tagger", model("RobertaForTokenClassification", "RobertaConfig", **TINY), texts())
    yield row("XLM-RoBERTa, words", model("XLMRobertaForMaskedLM", "XLMRobertaConfig", **TINY), texts())
    yield row("ELECTRA, discriminator", model("ElectraForPreTraining", "ElectraConfig", embedding_size=32,
              **TINY),
              texts(kinds=True))  # fmt: skip
    yield row("ALBERT", model("AlbertModel", "AlbertConfig", embedding_size=32, **TINY), texts())
    yield row("DeBERTa v2, with disentangled attention", model(
        "DebertaV2ForSequenceClassification", "DebertaV2Config", relative_attention=True,
        pos_att_type=["p2c", "c2p"], position_buckets=16, **TINY), texts())  # fmt: skip
    yield row("MPNet", model("MPNetModel", "MPNetConfig", **TINY), texts())
    yield row("ModernBERT", model(
        "ModernBertForSequenceClassification", "ModernBertConfig", **TINY, pad_token_id=1, cls_token_id=2,
        sep_token_id=3, bos_token_id=2, eos_token_id=3, local_attention=8), texts())  # fmt: skip
    yield row("MobileBERT", model("MobileBertModel", "MobileBertConfig", embedding_size=32, **{
        **TINY, "intra_bottleneck_size": 32, "true_hidden_size": 32}), texts())  # fmt: skip
    yield row("FNet, Fourier layers", model("FNetModel", "FNetConfig", vocab_size=WORDS, hidden_size=64,
              num_hidden_layers=2, intermediate_size=128), ids_only())  # fmt: skip
    yield row("LayoutLM, words and boxes", model("LayoutLMForTokenClassification", "LayoutLMConfig", **TINY),
              layout)  # fmt: skip
    yield row("GPT-2, sentence classifier", model(
        "GPT2ForSequenceClassification", "GPT2Config", vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4,
        pad_token_id=1, use_cache=False), texts(padded=5))  # fmt: skip
    yield row("Llama, next word", model(
        "LlamaForCausalLM", "LlamaConfig", **TINY), texts(padded=0),
        refused="save_pretrained(FOLDER)")  # fmt: skip
    yield row(
        "ViT, classifier", model("ViTForImageClassification", "ViTConfig", **VIT), pictures(), known=True
    )
    yield row("DINOv2", model("Dinov2Model", "Dinov2Config", hidden_size=64, num_hidden_layers=2,
              num_attention_heads=4, image_size=70, patch_size=14), pictures(70))  # fmt: skip
    yield row("BEiT", model("BeitForImageClassification", "BeitConfig", **VIT), pictures())
    yield row("SigLIP, images", model("SiglipVisionModel", "SiglipVisionConfig", **VIT), pictures())
    yield row("CLIP, images", model("CLIPVisionModelWithProjection", "CLIPVisionConfig", patch_size=16,
              **VIT),
              pictures(), known=True)  # fmt: skip
    yield row("CLIP, images and texts", clip, clip_inputs)
    yield row("SwinV2", model("Swinv2ForImageClassification", "Swinv2Config", image_size=64, embed_dim=32,
              depths=[1, 1], num_heads=[2, 4], window_size=4), pictures())  # fmt: skip
    yield row("YOLOS, boxes", model("YolosForObjectDetection", "YolosConfig", **{**VIT, "image_size": [64,
              64]},
              num_detection_tokens=10), pictures())  # fmt: skip
    yield row("DPT, depth", model("DPTForDepthEstimation", "DPTConfig", **{**VIT, "num_hidden_layers": 4},
              patch_size=16, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 16, 32, 32],
              fusion_hidden_size=32), pictures())  # fmt: skip
    yield row("GLPN, depth", model("GLPNForDepthEstimation", "GLPNConfig", hidden_sizes=[16, 32, 40, 64],
              depths=[1, 1, 1, 1], decoder_hidden_size=32), pictures())  # fmt: skip
    yield row("SegFormer", model("SegformerForSemanticSegmentation", "SegformerConfig", depths=[1, 1, 1, 1],
              hidden_sizes=[16, 32, 40, 64], decoder_hidden_size=32), pictures(), known=True)  # fmt: skip
    yield row("Deformable DETR", deformable_detr, pictures(), targets=("ort",))
    yield row("RT-DETR v2", rt_detr, pictures(), targets=("ort",))
    yield row("Mask2Former", mask2former, pictures(96), targets=("ort",))
    yield row("SAM, image encoder", sam_encoder, pictures())
    yield row("VideoMAE", model("VideoMAEForVideoClassification", "VideoMAEConfig", **{**VIT,
              "image_size": 32},
              num_frames=4), video)  # fmt: skip
    yield row("Wav2Vec2, CTC", model("Wav2Vec2ForCTC", "Wav2Vec2Config", **AUDIO), sounds())
    yield row("HuBERT", model("HubertModel", "HubertConfig", **AUDIO), sounds())
    yield row("Audio Spectrogram Transformer", model("ASTForAudioClassification", "ASTConfig", hidden_size=64,
              num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_length=128,
              num_mel_bins=64), spectrogram)  # fmt: skip
    yield row("PatchTST, forecasts", model("PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=3,
              context_length=32, patch_length=8, patch_stride=8, prediction_length=8, d_model=32,
              num_attention_heads=4, ffn_dim=64, num_hidden_layers=2), series)  # fmt: skip
    yield row("T5, encoder and decoder", model("T5ForConditionalGeneration", "T5Config", vocab_size=WORDS,
              d_model=64, d_kv=16, d_ff=128, num_layers=1, num_heads=4), seq2seq,
              refused="encoder-decoder", known=True)  # fmt: skip
    yield row("T5, encoder alone", t5_encoder, ids_only())
    yield folder_row("ViT, folder with its processor", vit_folder)
    yield folder_row("BERT, folder with its tokenizer", bert_folder, options=("--shape", "input_ids=1x24",
                     "--shape", "attention_mask=1x24"))  # fmt: skip
    yield folder_row("BERT, folder of weights alone", bert_weights_folder, refused="optimum")


AUDIO = {
    "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128,
    "conv_dim": (32,) * 4, "conv_kernel": (10, 3, 3, 2), "conv_stride": (5, 4, 4, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}  # fmt: skip


def ids_only(length: int = 24) -> Callable[[], dict[str, Any]]:
    return lambda: {"input_ids": texts(length, 0)()["input_ids"]}


def layout() -> dict[str, Any]:
    import torch

    corners = torch.randint(0, 400, (1, 24, 2))
    return {**texts()(), "bbox": torch.cat([corners, corners + torch.randint(1, 500, (1, 24, 2))], -1)}


def seq2seq() -> dict[str, Any]:
    return {**texts(padded=0)(), "decoder_input_ids": texts(6, 0)()["input_ids"]}


def video() -> dict[str, Any]:
    import torch

    return {"pixel_values": torch.randn(1, 4, 3, 32, 32)}


def spectrogram() -> dict[str, Any]:
    import torch

    return {"input_values": torch.randn(1, 128, 64)}


def series() -> dict[str, Any]:
    import torch

    return {"past_values": torch.randn(1, 32, 3).cumsum(1)}


def clip() -> Any:
    from transformers import CLIPConfig, CLIPModel

    text = {**TINY, "eos_token_id": WORDS - 1, "bos_token_id": WORDS - 2, "max_position_embeddings": 32}
    return CLIPModel(
        CLIPConfig(text_config=text, vision_config={**VIT, "patch_size": 16}, projection_dim=32)
    ).eval()


def clip_inputs() -> dict[str, Any]:
    inputs = {**texts(16, 0)(), **pictures()()}
    inputs["input_ids"][0, -1] = WORDS - 1
    return inputs


RESNET = {
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 48, 64],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}


def deformable_detr() -> Any:
    from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(**RESNET, out_features=["stage2", "stage3", "stage4"])
    config = DeformableDetrConfig(
        backbone_config=backbone, use_timm_backbone=False, d_model=64, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        num_queries=10,
    )  # fmt: skip
    return DeformableDetrForObjectDetection(config).eval()


def rt_detr() -> Any:
    from transformers import RTDetrResNetConfig, RTDetrV2Config, RTDetrV2ForObjectDetection

    backbone = RTDetrResNetConfig(**RESNET, out_features=["stage2", "stage3", "stage4"])
    config = RTDetrV2Config(
        backbone_config=backbone, encoder_hidden_dim=64, encoder_in_channels=[32, 48, 64], encoder_ffn_dim=64,
        encoder_attention_heads=4, d_model=64, decoder_in_channels=[64] * 3, decoder_ffn_dim=64,
        decoder_layers=2,
        decoder_attention_heads=4, num_queries=20, anchor_image_size=[64, 64], feat_strides=[8, 16, 32],
        initializer_range=0.15,  # by the default of 0.01 the values vanish, and any queries would be the best
    )  # fmt: skip
    return RTDetrV2ForObjectDetection(config).eval()


def mask2former() -> Any:
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig

    backbone = SwinConfig(
        image_size=96, embed_dim=16, depths=[1, 1, 1, 1], num_heads=[2, 2, 2, 2], window_size=3,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = Mask2FormerConfig(
        backbone_config=backbone, feature_size=32, mask_feature_size=32, hidden_dim=32,
        encoder_feedforward_dim=32,
        encoder_layers=1, decoder_layers=2, num_attention_heads=4, dim_feedforward=32, num_queries=8,
    )  # fmt: skip
    return Mask2FormerForUniversalSegmentation(config).eval()


def sam_encoder() -> Any:
    from transformers import SamVisionConfig, SamVisionModel

    config = SamVisionConfig(
        hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=2, image_size=64,
        patch_size=8,
        window_size=4, global_attn_indexes=[1], mlp_dim=64,
    )  # fmt: skip
    return SamVisionModel(config).eval()


def t5_encoder() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(
        T5Config(vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    ).eval()


def folder_row(name: str, fill: Callable[[Path], Made], **rest: Any) -> Row:
    def make(folder: Path) -> Made:
        import torch

        torch.manual_seed(0)
        (folder / "model").mkdir()
        return fill(folder / "model")

    return Row(name, FRAMEWORK, make, "folder", **rest)


def vit_folder(folder: Path) -> Made:
    from transformers import ViTImageProcessor

    module = model("ViTForImageClassification", "ViTConfig", **VIT, id2label={0: "cat", 1: "dog"})()
    ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return exported(module, pictures(), folder, {"pixel_values": {0: "batch"}})


def bert_folder(folder: Path) -> Made:
    write_words(folder)
    module = model("BertModel", "BertConfig", **TINY)()
    axes = {name: {0: "batch", 1: "sequence"} for name in ("input_ids", "attention_mask")}
    return exported(module, texts(), folder, axes)


def bert_weights_folder(folder: Path) -> Made:
    write_words(folder)
    model("BertModel", "BertConfig", **TINY)().save_pretrained(folder)
    return Made(folder, (), ())


def write_words(folder: Path) -> None:
    """Write a tokenizer of words, as transformers saves one."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "[PAD]", *(f"word{k}" for k in range(WORDS - 2))]
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)


def exported(module: Any, inputs: Callable[[], dict[str, Any]], folder: Path, axes: Any) -> Made:
    """Export a module as Optimum does: ``model.onnx`` with dynamic axes, beside ``config.json``."""
    import torch

    examples = [inputs() for _ in range(2)]
    module.config.save_pretrained(folder)
    module.config.return_dict = False
    torch.onnx.export(
        module, (), folder / "model.onnx", kwargs=examples[0], dynamo=False, input_names=list(examples[0]),
        dynamic_axes=axes, opset_version=17,
    )  # fmt: skip
    answers = [[np.asarray(array) for array in outputs(module, example)] for example in examples]
    return Made(folder, [arrays(example) for example in examples], answers)
