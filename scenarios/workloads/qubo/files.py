"""Read a binary quadratic problem from a file as a model of dimod; errors name the line of a text file.

| file | what is read |
|---|---|
| begins with ``DIMODBQM`` | a model that dimod's ``to_file`` wrote |
| ``.json`` | a model as dimod's ``to_serializable`` makes it |
| ``.npz`` | a graph of ``rig workload export``, as maximum independent set; or a square matrix ``Q`` |
| ``.qubo`` | D-Wave's text: ``p qubo 0 maxNodes nNodes nCouplers``, then lines ``i j weight`` from 0 on |
| ``.qplib`` | QPLIB's text of a binary problem without constraints (types such as QBN or LBB) |
| other text, two columns | a list of edges: the maximum independent set of the graph |
| other text, three columns | COO: ``i j weight``, from 0 on; with a line ``# vartype=SPIN``, variables are spins |
| ``.csv``, or text of other columns | a square matrix Q, a row in each line |
"""

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, reason
from rig.plugins import imported
from rig.recording.disk.size_limits import read_bounded
from scenarios.workloads.qubo_mis.graph import MAX_NODES, Graph, from_payload
from scenarios.workloads.qubo_mis.workload import graph_digest

MOST_BYTES = 1 << 30
_COMMENT = re.compile(r"[#%!]|c(\s|$)")
_VARTYPE = re.compile(r"#.*?vartype[:=]\s*(\w+)")
_BLANKS = "Write i j weight with blanks between, in a .txt, or a square matrix"
Terms = dict[tuple[int, int], tuple[float, int]]
"""The weight and the line of each pair."""


@dataclass(frozen=True)
class Lines:
    """The lines of a text without comments, each with its number and its fields."""

    name: str
    rows: Sequence[tuple[int, list[str]]]

    def fault(self, line: int, what: str, remedy: str = "Correct the file, or restore it") -> DataError:
        """Return the error for a line."""
        return DataError(f"{self.name}:{line}: {what}", field="data", value=f"{self.name}:{line}", remedy=remedy)

    def number(self, line: int, text: str) -> float:
        """Return a text of a line as a finite number."""
        try:
            value = float(text)
        except ValueError:
            raise self.fault(line, f"{text[:40]!r} is not a number") from None
        if not math.isfinite(value):
            raise self.fault(line, f"the coefficient is {text}", "Give finite coefficients")
        return value

    def index(self, line: int, text: str, first: int, n: int) -> int:
        """Return the number of a variable, from 0 on; the file numbers its ``n`` variables from ``first`` on."""
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and first <= int(text) < first + n):
            last = "" if n == MAX_NODES else f" to {first + n - 1}"
            raise self.fault(line, f"{text[:40]!r} is not a variable: they are whole numbers from {first}{last}")
        return int(text) - first

    def triple(self, line: int, fields: Sequence[str], first: int, n: int) -> tuple[int, int, float]:
        """Return the two variables and the weight in a line."""
        if len(fields) != 3:
            raise self.fault(line, f"has {len(fields)} columns instead of the 3 of i j weight")
        return (*(self.index(line, text, first, n) for text in fields[:2]), self.number(line, fields[2]))  # type: ignore[return-value]


def read(path: Path) -> tuple[Any, Graph | None]:
    """Return the model of a file, and the graph if the model is the independent-set problem of a graph.

    Raises ``DataError`` with the line for a text that is corrupt, asymmetric, not square or not finite, and for a file
    that cannot be read; ``MissingExtraError`` without dimod.
    """
    dimod = imported("dimod", "the workload qubo", "qubo", field="workload", value="qubo")
    try:
        raw = read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise _unread(path, reason(error)) from error
    if raw.startswith(b"DIMODBQM"):
        return _parsed(path, lambda: dimod.BinaryQuadraticModel.from_file(io.BytesIO(raw))), None
    if path.suffix == ".npz":
        return _from_arrays(path, raw, dimod)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unread(path, "is neither text nor a file of a known binary form") from error
    if path.suffix == ".json":
        return _parsed(path, lambda: dimod.BinaryQuadraticModel.from_serializable(json.loads(text))), None
    return _from_text(path, text, dimod)


def _from_text(path: Path, text: str, dimod: Any) -> tuple[Any, Graph | None]:
    lines = Lines(path.name, _rows(text, path.suffix == ".csv"))
    if not lines.rows:
        raise _unread(path, "holds no problem")
    if path.suffix in (".qplib", ".qubo"):
        return (_qplib if path.suffix == ".qplib" else _dwave)(lines, dimod), None
    first, head = lines.rows[0]
    if not any(map(_is_number, head)):
        raise lines.fault(first, f"{' '.join(head)[:40]!r} has no number", f"Leave a header out. {_BLANKS}")
    if path.suffix != ".csv" and len(head) == 2:
        graph = _graph(lines)
        return graph.to_bqm(), graph
    return (_coo(lines, text, dimod) if len(head) == 3 and path.suffix != ".csv" else _matrix(lines, dimod)), None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _rows(text: str, commas: bool) -> list[tuple[int, list[str]]]:
    found = ((k, line.replace(",", " ") if commas else line) for k, line in enumerate(text.splitlines(), 1))
    return [(k, line.split()) for k, line in found if line.strip() and not _COMMENT.match(line.strip())]


def _coo(lines: Lines, text: str, dimod: Any) -> Any:
    """Read COO text. Dimod's own reader silently drops lines that it does not know, such as those with an exponent."""
    terms = _terms(lines, lines.rows, MAX_NODES)
    found, kind = _VARTYPE.search(text), "BINARY"
    if found and (kind := found[1]) not in ("BINARY", "SPIN"):
        raise lines.fault(text[: found.start()].count("\n") + 1, f"the vartype {kind} is unknown")
    return _model(1 + max(max(pair) for pair in terms), _folded(lines, terms), 0.0, dimod, kind)


def _dwave(lines: Lines, dimod: Any) -> Any:
    (first, head), *rest = lines.rows
    if head[:2] != ["p", "qubo"] or len(head) != 6:
        raise lines.fault(first, "does not begin with a line `p qubo 0 maxNodes nNodes nCouplers`")
    n, alone, couplers = (lines.number(first, text) for text in head[3:])
    terms = _terms(lines, rest, int(n))
    counts = sum(u == v for u, v in terms), sum(u != v for u, v in terms)
    if counts != (alone, couplers):
        found = f"{counts[0]} nodes and {counts[1]} couplers follow this line, which states {alone:g} and {couplers:g}"
        raise lines.fault(first, found)
    return _model(int(n), _folded(lines, terms), 0.0, dimod)


def _qplib(lines: Lines, dimod: Any) -> Any:
    """Read QPLIB's text: x^T Q x / 2 + b x + q over bits; the file has the lower triangle of the symmetric Q.

    An entry beside the diagonal therefore counts twice, so its weight is not halved (Furini et al. 2019, appendix B).
    """
    rows = iter(lines.rows)

    def take(columns: int = 1) -> tuple[int, list[str]]:
        line, fields = next(rows, (lines.rows[-1][0] + 1, []))
        if len(fields) < columns:
            raise lines.fault(line, "the file ends too early or a value is missing")
        return line, fields

    def count() -> int:
        line, fields = take()
        return lines.index(line, fields[0], 0, MAX_NODES)

    take()
    line, (kind, *_) = take()
    if not re.fullmatch("[LDCQ]B[NB]", kind):
        what = f"the problem type is {kind}: only binary problems without constraints can be read, such as QBN"
        raise lines.fault(line, what, "Choose another problem, or write its constraints into the cost")
    line, (sense, *_) = take()
    if sense.lower() not in ("minimize", "maximize"):
        raise lines.fault(line, f"the sense is {sense}, neither minimize nor maximize")
    sign = 1.0 if sense.lower() == "minimize" else -1.0
    n, terms = count(), Terms()
    for _ in range(0 if kind[0] == "L" else count()):
        line, fields = take(3)
        u, v, weight = lines.triple(line, fields[:3], 1, n)
        _add(lines, terms, line, (u, v), weight if u != v else 0.5 * weight)
    pairs = {pair: sign * weight for pair, (weight, _) in terms.items()}
    line, (text, *_) = take()
    linear = dict.fromkeys(range(n), lines.number(line, text))
    for _ in range(count()):
        line, fields = take(2)
        linear[lines.index(line, fields[0], 1, n)] = lines.number(line, fields[1])
    for k, weight in linear.items():
        pairs[k, k] = pairs.get((k, k), 0.0) + sign * weight
    line, (text, *_) = take()
    return _model(n, pairs, sign * lines.number(line, text), dimod)


def _graph(lines: Lines) -> Graph:
    edges, seen = [], dict[tuple[int, int], int]()
    for line, fields in lines.rows:
        if len(fields) != 2:
            raise lines.fault(line, f"has {len(fields)} columns instead of the 2 of an edge")
        u, v = sorted(lines.index(line, text, 0, MAX_NODES) for text in fields)
        if u == v:
            raise lines.fault(line, f"is an edge of node {u} to itself")
        if seen.setdefault((u, v), line) != line:
            raise lines.fault(line, f"repeats the edge {u} {v} of line {seen[u, v]}")
        edges.append((u, v))
    pairs = np.array(sorted(edges), np.int32)
    return Graph(int(pairs.max()) + 1, pairs)


def _matrix(lines: Lines, dimod: Any) -> Any:
    n = len(lines.rows)
    if odd := next(((line, len(fields)) for line, fields in lines.rows if len(fields) != n), None):
        raise lines.fault(odd[0], f"has {odd[1]} columns, and the matrix has {n} rows: it is not square", _BLANKS)
    matrix = np.array([[lines.number(line, text) for text in fields] for line, fields in lines.rows])
    return _of_matrix(matrix, dimod, lambda u, v: lines.fault(lines.rows[u][0], _asymmetric(matrix, u, v)))


def _of_matrix(matrix: NDArray[Any], dimod: Any, fault: Any) -> Any:
    """Return the model of x^T Q x for a symmetric matrix Q, or for one triangle of it."""
    lower, upper = np.tril(matrix, -1), np.triu(matrix, 1)
    if lower.any() and upper.any() and (matrix != matrix.T).any():
        raise fault(*(int(k) for k in np.argwhere(matrix != matrix.T)[0]))
    folded = np.triu(matrix) + lower.T
    u, v = np.nonzero(np.triu(folded, 1))
    linear = np.ascontiguousarray(np.diag(folded))
    return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, (u, v, folded[u, v]), 0.0, dimod.BINARY)


def _asymmetric(matrix: NDArray[Any], u: int, v: int) -> str:
    return f"the matrix is asymmetric: Q[{u},{v}] is {matrix[u, v]:g} and Q[{v},{u}] is {matrix[v, u]:g}"


def _from_arrays(path: Path, raw: bytes, dimod: Any) -> tuple[Any, Graph | None]:
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise _unread(path, f"is not an .npz of numpy: {error}") from error
    if "edges" in arrays and "nodes" in arrays:
        try:
            graph = from_payload(Graph(int(arrays["nodes"]), arrays["edges"].astype(np.int32)).to_payload())
        except (DataError, OverflowError, TypeError, ValueError) as error:
            raise _unread(path, "holds no graph: its edges must be sorted, distinct rows of u < v < nodes") from error
        stated = {name: arrays[name].item() for name in ("density", "seed", "digest") if name in arrays}
        if len(stated) == 3 and graph_digest(graph, stated["density"], stated["seed"]) != stated["digest"]:
            raise _unread(path, "was changed: its digest is not that of its graph")
        return graph.to_bqm(), graph
    matrix = arrays.get("Q")
    if matrix is None or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "iuf":
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise _unread(path, f"holds {found}, and neither a graph (nodes, edges) nor a square matrix Q")
    if not np.isfinite(matrix).all():
        raise _unread(path, f"has a coefficient that is not finite, Q{np.argwhere(~np.isfinite(matrix))[0].tolist()}")
    return _of_matrix(matrix.astype(float), dimod, lambda u, v: _unread(path, _asymmetric(matrix, u, v))), None


def _terms(lines: Lines, rows: Sequence[tuple[int, list[str]]], n: int) -> Terms:
    terms: Terms = {}
    for line, fields in rows:
        u, v, weight = lines.triple(line, fields, 0, n)
        _add(lines, terms, line, (u, v), weight)
    return terms


def _add(lines: Lines, terms: Terms, line: int, pair: tuple[int, int], weight: float) -> None:
    if pair in terms:
        raise lines.fault(line, f"repeats {pair[0]} {pair[1]} of line {terms[pair][1]}")
    terms[pair] = weight, line


def _folded(lines: Lines, terms: Terms) -> dict[tuple[int, int], float]:
    """Fold both triangles into one. If both are given, they must be equal, and their weights add up as in x^T Q x."""
    mirrored = any(u != v and (v, u) in terms for u, v in terms)
    folded: dict[tuple[int, int], float] = {}
    for (u, v), (weight, line) in terms.items():
        other = terms.get((v, u), (0.0, 0))[0]
        if mirrored and u != v and other != weight:
            what = f"the matrix is asymmetric: {u} {v} has {weight:g} and {v} {u} has {other:g}"
            raise lines.fault(line, what, "Give one triangle alone, or both alike")
        key = min(u, v), max(u, v)
        folded[key] = folded.get(key, 0.0) + weight
    return folded


def _model(n: int, pairs: dict[tuple[int, int], float], constant: float, dimod: Any, kind: str = "BINARY") -> Any:
    linear = np.array([pairs.get((k, k), 0.0) for k in range(n)])
    apart = [(u, v, weight) for (u, v), weight in pairs.items() if u != v]
    u, v, weight = (np.array(column) for column in zip(*apart, strict=True)) if apart else (np.zeros(0, int),) * 3
    return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, (u, v, weight), constant, kind)


def _parsed(path: Path, parse: Any) -> Any:
    try:
        return parse()
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, OSError, RuntimeError) as error:
        raise _unread(path, f"is not a model of dimod: {type(error).__name__}: {error}") from error


def _unread(path: Path, why: str) -> DataError:
    remedy = "Give a file in a form that docs/how-to/own-qubo.md lists"
    return DataError(f"{path.name}: {why}", field="data", value=str(path), remedy=remedy)


def files_in(path: Path) -> Iterator[Path]:
    """Yield the path if it is a file, or each file of the folder in order of name, without hidden files."""
    yield from sorted(p for p in path.iterdir() if p.is_file() and p.name[0] != ".") if path.is_dir() else (path,)
