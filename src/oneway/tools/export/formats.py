"""The three formats: how a graph becomes a file, and how the file is run again.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.tools.export.graph import INPUT, Output, explain_error, trace

METADATA = "oneway.json"
"""Beside the graph in a .pt2 file."""

RT_INFO = "oneway"
"""What an OpenVINO file says about itself is below this name."""

Call = Callable[[Tensor], Tensor]
About = dict[str, Any]


class Opened(NamedTuple):
    """A file that can be run."""

    result: Call
    logits: Call
    """What its graph has before the class is chosen, where that is its result."""


class Format:
    """What all formats have."""

    suffix: str
    extra = ""
    needs: tuple[str, ...] = ()
    """Packages of that extra, without which there is no such file."""

    def require(self) -> None:
        """Raise a UserError with the command that installs what is missing."""
        for module in self.needs:
            import_extra(module, self.extra, f"Export to {self.suffix}")

    def files(self, path: Path) -> tuple[Path, ...]:
        """All that is written, in the order in which it may appear."""
        return (path,)

    def remove(self, path: Path) -> None:
        """Remove what was written, as far as it can."""
        for file in self.files(path):
            with suppress(OSError):
                file.unlink()


class Onnx(Format):
    """For ONNX Runtime, TensorRT and their like."""

    runtime = "ONNX Runtime"
    suffix = ".onnx"
    extra = "export"
    needs: tuple[str, ...] = ("onnx", "onnxscript", "onnxruntime")

    def write(self, network: nn.Module, output: Output, path: Path, about: About) -> Any:
        """The network as a file; returns the graph that it holds."""
        model = make_onnx(network, output)
        self.save(model, path, about)
        return model

    def save(self, model: Any, path: Path, about: About) -> None:
        """An ONNX model as a file, with what is said about it."""
        del model.metadata_props[:]
        for key, value in _texts(about).items():
            model.metadata_props.add(key=key, value=value)
        path.write_bytes(model.SerializeToString())

    def open(self, path: Path) -> Opened:
        """The file as functions of N×H×W×3 bytes."""
        onnx, runtime = (import_extra(name, "export", "An .onnx file") for name in ("onnx", "onnxruntime"))
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3

        def run(model: Any) -> Call:
            session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return lambda images: torch.from_numpy(session.run(None, {INPUT: images.numpy()})[0])

        model = onnx.load(str(path))
        result = run(model)
        for node in model.graph.node:
            if model.graph.output[0].name == "labels" and node.op_type == "ArgMax":
                logits = onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
                model.graph.output[0].CopyFrom(logits)
                return Opened(result, run(model))
        return Opened(result, result)


class OpenVino(Onnx):
    """For OpenVINO: the same graph in its own format, with the weights beside it."""

    runtime = "OpenVINO"
    suffix = ".xml"
    extra = "openvino"
    needs = (*Onnx.needs, "openvino")

    def files(self, path: Path) -> tuple[Path, ...]:
        """The weights first: an .xml without its .bin is no model."""
        return path.with_suffix(".bin"), path

    def save(self, model: Any, path: Path, about: About) -> None:
        """An ONNX model as two files, with what is said about it."""
        openvino = import_extra("openvino", self.extra, "Export to .xml")
        try:
            # Not by its convert_model, which tells its makers about every use.
            graph = openvino.Core().read_model(model.SerializeToString())
            for key, value in _texts(about).items():
                graph.set_rt_info(value, [RT_INFO, key])
            openvino.save_model(graph, path, compress_to_fp16=False)
        except RuntimeError as error:  # also where a disk is full
            raise UserError(f"OpenVINO cannot write this network ({explain_error(error)}).") from error

    def open(self, path: Path) -> Opened:
        """The files as functions of N×H×W×3 bytes."""
        openvino = import_extra("openvino", self.extra, "An .xml file")
        core = openvino.Core()
        # It computes in half precision where the CPU can, unless it is told not to.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}

        def run(model: Any) -> Call:
            compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", **settings})
            return lambda images: torch.from_numpy(compiled(images.numpy(), share_outputs=False)[0])

        model = core.read_model(path)
        result = run(model)
        choices = [node for node in model.get_ordered_ops() if node.get_type_name() == "TopK"]
        if "labels" not in model.output(0).get_names() or not choices:
            return Opened(result, result)
        return Opened(result, run(openvino.Model([choices[-1].input_value(0)], model.get_parameters(), "logits")))


class Pt2(Format):
    """For PyTorch, without this package."""

    runtime = "torch.export"

    def write(self, network: nn.Module, output: Output, path: Path, about: About) -> Any:
        """The network as a file; returns the graph that it holds."""
        graph = trace(network, output, pool_by_products=False)
        for part in graph.graph_module.modules():
            for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
                node.meta.pop("stack_trace", None)  # where in whose files each operation was written
        content = io.BytesIO()
        try:
            with warnings.catch_warnings(action="ignore"):  # the exporter's, about itself
                torch.export.save(graph, content, extra_files={METADATA: json.dumps(about, indent=1)})
        except Exception as error:  # whatever a graph cannot say
            raise UserError(f"This network has no .pt2 form ({explain_error(error)}).") from error
        path.write_bytes(content.getvalue())
        return graph

    def open(self, path: Path) -> Opened:
        """The file as functions of N×H×W×3 bytes."""
        with warnings.catch_warnings(action="ignore"):  # the exporter's, about itself
            program = torch.export.load(path)
            result, logits = program.module(), program.module()
        (end,) = [node for node in logits.graph.nodes if node.op == "output"]
        for node in logits.graph.nodes:
            if node.target == torch.ops.aten.max.dim:
                end.args = ((node.args[0],),)
        logits.recompile()
        return Opened(result, logits)


FORMATS: dict[str, Onnx | Pt2] = {".onnx": Onnx(), ".xml": OpenVino(), ".pt2": Pt2()}


def make_onnx(network: nn.Module, output: Output) -> Any:
    """The network as an ONNX model."""
    graph = trace(network, output, pool_by_products=True)
    try:
        with warnings.catch_warnings(action="ignore"):  # the exporter's, about itself
            program: Any = torch.onnx.export(
                graph, (), dynamo=True, verbose=False, input_names=[INPUT], output_names=[output]
            )
    except Exception as error:  # whatever an operation lacks
        raise UserError(f"This network has no ONNX form ({explain_error(error)}).") from error
    model = program.model_proto
    (given,), (found,) = model.graph.input, model.graph.output
    shapes = {"labels": ("batch", "height", "width"), "logits": ("batch", None, "height", "width")}
    _name_sides(given, ("batch", "height", "width", None))
    _name_sides(found, shapes[output])
    del model.graph.value_info[:]  # speaks of sides by their former names
    for part in (*model.graph.node, given, found):
        del part.metadata_props[:]  # where in whose files each operation was written
    return model


def _texts(about: About) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}


def _name_sides(value: Any, names: tuple[str | None, ...]) -> None:
    for side, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
        if name is not None:
            side.dim_param = name
