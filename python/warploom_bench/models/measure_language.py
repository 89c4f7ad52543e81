"""Measures prefills and decode steps of a language model on a GPU, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from warploom.target import cuda_target
from warploom_bench.check import deviation
from warploom_bench.kernels import Kernels
from warploom_bench.models import rivals
from warploom_bench.models.clocks import alternate, profiled
from warploom_bench.models.language import parameter_shapes
from warploom_bench.models.language_kernels import language_kernel
from warploom_bench.models.parameters import TorchArrays, random_parameters
from warploom_bench.models.results import LEFT_OUT, Result
from warploom_bench.models.roofline import language_memory, language_step
from warploom_bench.models.rows import PREFILL, Row
from warploom_bench.models.session import Session
from warploom_bench.models.sizes import LanguageSizes
from warploom_bench.models.torch_language import TorchLanguage
from warploom_bench.models.torch_memory import viewed, viewed_parameters

#: Relative errors of logits that are allowed against float32. Fp8: an activation next to a boundary
#: rounds to the other side. Experts: where two are nearly as good, a token may take the other.
ALLOWED = {"float16": 2e-2, "int4": 2e-2, "fp8": 0.15}
_ALLOWED_OF_EXPERTS, _ALLOWED_OF_STOCK = 0.1, 0.2
_ROUNDS, _STEPS, _PROFILED = 5, 6, 3
#: Decode steps of a row at most: each round begins with a step to warm up; checks need some, too.
_MOST_STEPS = _ROUNDS * (_STEPS + 1) + 2 * _PROFILED + 24
#: Share of the memory that a row may need by the count of bytes: allocators keep more than that.
_USABLE = 0.9
Step = Callable[[], Any]


@dataclass
class LanguageBench:
    """A model with random weights on the GPU, for both competitors.

    Attributes
    ----------
    torch : module
    sizes : LanguageSizes
    kernels : Kernels
        With the model's library in it.
    gpu : str
        The GPU that it is compiled for.
    whole : bool
        Whether torch.compile gets the model as a whole, or else a layer that serves all.
    stock : bool
        Whether TVM alone is measured, too.
    rival : bool
        Whether PyTorch is measured: torch.compile's search takes minutes.
    """

    torch: Any
    sizes: LanguageSizes
    kernels: Kernels
    gpu: str
    whole: bool = False
    stock: bool = False
    rival: bool = True

    def measure(self, row: Row, result: Result) -> Iterator[None]:
        """Fill the result; it is worth saving at each ``yield``."""
        result.reason = self._missing_memory(row)
        if result.reason:
            result.status = LEFT_OUT
            return
        torch, batch, new = self.torch, row.batch, row.tokens if row.kind == PREFILL else 1
        before = 0 if row.kind == PREFILL else row.tokens
        result.work = asdict(language_step(self.sizes, batch, new, before))
        result.allowed = max(
            ALLOWED[self.sizes.weights], _ALLOWED_OF_EXPERTS if self.sizes.experts else 0.0
        )
        self._shapes = parameter_shapes(self.sizes, cuda_target(self.gpu))
        self._weights = random_parameters(TorchArrays(torch, 0), self._shapes)
        ids = self._random_ids(batch, before + new)
        session = self._session(False)
        ours = self._prepared(session, row, ids, result)
        found = torch.from_dlpack(ours()).double()
        checked = sorted({0, batch - 1})
        reference = self._reference(ids[checked])
        result.ours.error = self._error(found[checked], reference)
        alternate({"ours": (ours, result.ours)}, torch.cuda.synchronize, 1, _STEPS)
        if session.declined:
            result.notes.append(f"decode steps are no CUDA graphs: {session.declined}")
        yield  # whatever happens to the rival
        result.ours.wall.clear()
        result.ours.host.clear()
        runners = {"ours": (ours, result.ours)}
        if self.rival:
            rival, logits = self._rival(row, ids, checked, result)
            rival()
            result.rival.error = self._error(logits[checked].double(), reference)
            yield
            runners["rival"] = rival, result.rival
            del rival, logits  # the runner alone holds PyTorch's memory
        alternate(runners, torch.cuda.synchronize, _ROUNDS, _STEPS)
        yield
        if self.stock:
            del runners  # and with it PyTorch's memory
            self._measure_stock(row, ids, reference, session, result)
            ours = self._prepared(session, row, ids)
            yield
            runners = {"ours": (ours, result.ours)}
        for step, runner in runners.values():
            runner.read_kernels(profiled(torch, step, _PROFILED))
            yield

    def _missing_memory(self, row: Row) -> str:
        """Why a row does not fit, or nothing."""
        model = language_memory(self.sizes, 0, 0, row.tokens)
        tokens = row.tokens + _MOST_STEPS
        cache = language_memory(self.sizes, row.batch, tokens, row.tokens) - model
        # PyTorch unpacks weights of 4 bits, and has those of experts in bfloat16.
        times = {"float16": 2.0 if self.sizes.experts else 1.0, "int4": 4.6, "fp8": 1.0}
        needed = model * times[self.sizes.weights] + 2 * cache
        memory = self.torch.cuda.mem_get_info()[1]
        if needed <= _USABLE * memory:
            return ""
        return (
            f"ours and PyTorch's need about {needed / 1e9:.0f} GB together, and the GPU has "
            f"{memory / 1e9:.0f} GB"
        )

    def _random_ids(self, batch: int, tokens: int) -> Any:
        generator = self.torch.Generator(device="cuda").manual_seed(1)
        shape = (batch, tokens)
        ids = self.torch.randint(
            0, self.sizes.vocabulary, shape, device="cuda", generator=generator
        )
        return ids.int()

    def _session(self, stock: bool) -> Session:
        self.torch.cuda.empty_cache()  # what PyTorch keeps is not there for TVM
        module = self.kernels.module(language_kernel(self.sizes, self.gpu, stock))
        tensors = viewed_parameters(self.torch, self._weights, self._shapes)
        return Session(module, tensors, tvm.cuda(0), self._weights, graphs=not stock)

    def _prepared(
        self, session: Session, row: Row, ids: Any, result: Result | None = None
    ) -> Step:
        """What a step of ours calls, behind the prompts where it is a decode step.

        A note of the result says how decode steps run, and what the other way takes.
        """
        if row.kind == PREFILL:
            session.cache.open(1, row.tokens, row.tokens)
            prompt = viewed(self.torch, ids)

            def prefill() -> Any:
                logits = session.prefill(0, prompt)
                session.cache.forget(0)
                return logits

            return prefill
        session.cache.open(row.batch, row.tokens + _MOST_STEPS, row.tokens)
        prompts, last = ids[:, :-1].contiguous(), ids[:, -1:].contiguous()
        for s in range(row.batch):
            session.prefill(s, viewed(self.torch, prompts[s : s + 1]))
            # TVM copies the cache's tables of the next pass beside the stream, over those in use.
            self.torch.cuda.synchronize()
        sequences, own = tuple(range(row.batch)), viewed(self.torch, last)
        session.warm_up(sequences, own)
        times = session.take_faster(sequences, own)
        if times and result is not None:
            ways = ", ".join(f"by {name} {ms:.3f} ms" for name, ms in times.items())
            result.notes.append(f"a decode step takes {ways}; the faster way is measured")
        return lambda: session.decode(sequences, own)

    def _model(self, dtype: Any) -> TorchLanguage:
        attend = rivals.exact_attention(self.torch)
        return TorchLanguage(self.torch, self.sizes, self._weights, dtype, attend)

    def _reference(self, ids: Any) -> Any:
        """Logits in float32, one sequence after the other."""
        torch, found = self.torch, []
        model = self._model(torch.float32)
        positions = torch.arange(ids.shape[1], device="cuda")
        for one in ids.long():
            found.append(model.step(one[None], None, positions).double())
            torch.cuda.empty_cache()
        return torch.cat(found)

    def _rival(self, row: Row, ids: Any, checked: list[int], result: Result) -> tuple[Step, Any]:
        """PyTorch's step as a graph, and the logits that it writes."""
        torch, one = self.torch, self.sizes
        dtype = torch.bfloat16 if one.experts else torch.float16
        decode = row.kind != PREFILL
        model = self._model(dtype)
        caches = model.caches(row.batch, ids.shape[1])
        positions = torch.arange(ids.shape[1], device="cuda")
        model.hold()
        backend = model.use_fastest_attention(caches, ids.shape[1], decode)
        if decode:
            prompt = positions[:-1]
            for s in checked:
                part = [tuple(each[s : s + 1] for each in own) for own in caches]
                model.step(ids[s : s + 1, :-1].long(), part, prompt)
            ids, positions = ids[:, -1:], positions[-1:].clone()
        ids = ids.long()
        compiled = rivals.compiler(torch)
        if self.whole:
            run = compiled(model.step)
        else:
            model.compile(compiled)
            run = model.step
        result.rival_name = (
            f"torch.compile (max-autotune, {'whole' if self.whole else 'layer by layer'}) in a "
            f"CUDA graph, attention by {backend}, {str(dtype).removeprefix('torch.')}"
        )
        return rivals.captured(torch, lambda: run(ids, caches, positions))

    def _measure_stock(
        self, row: Row, ids: Any, reference: Any, session: Session, result: Result
    ) -> None:
        """TVM alone, which is slow: a few steps."""
        session.cache.close()
        self.torch.cuda.empty_cache()
        stock = self._session(True)
        step = self._prepared(stock, row, ids)
        found = self.torch.from_dlpack(step()).double()[sorted({0, row.batch - 1})]
        result.stock.error = self._error(found, reference)
        if not result.stock.error <= _ALLOWED_OF_STOCK:
            result.notes.append(f"TVM alone is off by {result.stock.error:.1e}")
        alternate({"stock": (step, result.stock)}, self.torch.cuda.synchronize, 1, 3)
        stock.cache.close()

    def _error(self, found: Any, reference: Any) -> float:
        rows = len(reference)
        return deviation(found.reshape(rows, -1), reference.reshape(rows, -1)).relative
