"""``kvplan models``: list, show and import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvplan.cli.options import FormatOption, OutputOption, new_group
from kvplan.cli.output import check_format, emit, tell_warnings
from kvplan.question import BY_NAME

if TYPE_CHECKING:
    from kvplan.model.model import Model
    from kvplan.reports.listing import Entry

app = new_group("List the bundled models, show one with its sources, or import one of your own.")

FamilyOption = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="NAME",
        help="Only this family or architecture, such as qwen3.",
        show_default=False,
    ),
]
AttentionOption = Annotated[
    str | None,
    typer.Option(
        "--attention",
        metavar="KIND",
        help="Only models with layers that keep this kind of cache, such as full, "
        "sliding_window, latent or recurrent.",
        show_default=False,
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--min-context",
        metavar="TOKENS",
        help="Only models with at least this native context, such as 128k.",
        show_default=False,
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A bundled name in any spelling, a config.json, a folder, a .gguf, a hub id or a "
        "YAML profile.",
        show_default=False,
    ),
]
RevisionOption = Annotated[
    str | None,
    typer.Option(
        "--revision",
        metavar="NAME",
        help=BY_NAME["revision"].help,
        show_default=False,
    ),
]


@app.command("list")
def list_models(
    format: FormatOption = "table",
    family: FamilyOption = None,
    attention: AttentionOption = None,
    min_context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """List the bundled models with what they keep per token in 16 bits on one GPU."""
    from kvplan.catalogue import catalogue, name_key
    from kvplan.reports import words
    from kvplan.reports.listing import LIST_FORMATS, Shown, render_list, whole
    from kvplan.units import format_bytes, format_tokens, parse_tokens

    check_format(format, LIST_FORMATS)
    shortest = 0 if min_context is None else parse_tokens(min_context, "--min-context")
    kind = None if attention is None else attention.strip().lower().replace("-", "_")
    wanted = None if family is None else name_key(family)
    records, families, kinds = [], set(), set()
    for profile in catalogue("models"):
        model = _load(profile)
        names = {str(profile.get("family", model.model_type)), model.model_type}
        row = record(model, profile)
        families |= names
        kinds |= set(row["attention"])
        if wanted is not None and wanted not in map(name_key, names):
            continue
        if kind is not None and kind not in row["attention"]:
            continue
        if (row["max_position_embeddings"] or 0) < shortest:
            continue
        records.append(row)
    if wanted is not None and wanted not in map(name_key, families):
        raise _unknown("--family", family, families)
    if kind is not None and kind not in kinds:
        raise _unknown("--attention", attention, kinds)
    if not records:
        tell_warnings(["no bundled model is like that"])
    columns = [
        Shown("name", "name"),
        Shown("model_type", "architecture", drop=3),
        Shown("attention", "keeps", " + ".join, drop=4),  # type: ignore[arg-type]
        Shown("layers", "layers", right=True, drop=5),
        Shown("parameters", "parameters", lambda n: words.parameters(whole(n)), right=True, drop=2),
        Shown("max_position_embeddings", "context", lambda n: format_tokens(whole(n)), right=True),
        Shown("bytes_per_token", "KV a token", lambda n: format_bytes(whole(n)), right=True),
    ]
    emit(render_list(records, columns, format, to_file=output is not None), output)


@app.command("show")
def show_model(
    model: NameArgument,
    format: FormatOption = "table",
    revision: RevisionOption = None,
    output: OutputOption = None,
) -> None:
    """Show a model's facts and where they are from; `kvplan explain` shows its arithmetic."""
    from kvplan.catalogue import catalogue
    from kvplan.reports.listing import SHOW_FORMATS, render_entry
    from kvplan.sources import load_model

    check_format(format, SHOW_FORMATS)
    loaded = load_model(model, revision=revision)
    bundled = loaded.source.startswith("bundled: ")
    match = catalogue("models").find(model) if bundled else None
    profile = match.profile if match else {}
    if format == "json":
        tell_warnings(loaded.warnings)
    entry = _entry(loaded, profile)
    emit(render_entry(entry, format, to_file=output is not None), output)


@app.command("import")
def import_model(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="A hub id, a model folder, a config.json, a .gguf, a bundled name or a profile.",
            show_default=False,
        ),
    ],
    revision: RevisionOption = None,
    output: OutputOption = None,
) -> None:
    """Write a model's facts as a YAML profile of your own, which every command takes by its path.

    kvplan models import org/name --output name.yaml
    """
    from kvplan.sources import profile_from

    emit(profile_from(ref, revision=revision), output)


def record(model: Model, profile: dict[str, Any]) -> dict[str, Any]:
    """A model as plain figures: its own precision (16 bits where it states none), one GPU."""
    from kvplan.model.rows import sequence_bytes, slope_bytes
    from kvplan.precision.kv import KV_FORMATS

    kv = KV_FORMATS[model.kv_cache_dtype or model.dtype.name]
    rows = model.logical_rows(kv)
    native = model.max_position_embeddings
    at = native or 32_768
    return {
        "name": model.name,
        "hub_id": model.hub_id if profile else None,
        "family": profile.get("family"),
        "model_type": model.model_type,
        "attention": list(dict.fromkeys(group.cache.kind for group in model.groups)),
        "layers": model.num_hidden_layers,
        "attention_heads": model.num_attention_heads,
        "kv_heads": model.num_kv_heads,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "weight_format": model.scheme.name,
        "max_position_embeddings": native,
        "kv_cache_dtype": kv.name,
        "bytes_per_token": -(-sequence_bytes(rows, at) // at),
        "next_token_bytes": slope_bytes(rows, at),
    }


def _contexts(model: Model) -> list[dict[str, int]]:
    """What a sequence keeps at several lengths up to the native one."""
    from kvplan.model.rows import sequence_bytes
    from kvplan.precision.kv import KV_FORMATS
    from kvplan.reports.pattern import contexts

    rows = model.logical_rows(KV_FORMATS[model.kv_cache_dtype or model.dtype.name])
    found = []
    for tokens in contexts(model.max_position_embeddings, None):
        held = sequence_bytes(rows, tokens)
        found.append({"tokens": tokens, "bytes": held, "bytes_per_token": -(-held // tokens)})
    return found


def _entry(model: Model, profile: dict[str, Any]) -> Entry:
    from kvplan.reports import words
    from kvplan.reports.listing import Entry
    from kvplan.reports.pattern import drawing, find_pattern, layer_labels
    from kvplan.units import format_bytes, format_gib, format_tokens

    row = record(model, profile)
    unknown = "not known"
    native = model.max_position_embeddings
    facts = [("name", model.name), ("facts from", model.source)]
    if row["hub_id"]:
        facts.append(("on the hub", str(row["hub_id"])))
    if profile.get("aliases"):
        facts.append(("also called", ", ".join(profile["aliases"])))
    contexts = _contexts(model)
    held = [
        f"{format_tokens(c['tokens'])} {format_bytes(c['bytes_per_token'])} "
        f"({format_gib(c['bytes'])})"
        for c in contexts
    ]
    facts += [
        ("architecture", model.model_type),
        ("layers", find_pattern(layer_labels(model)).words()),
        *([("drawn", drawn)] if (drawn := drawing(model)) else []),
        ("heads", f"{model.num_attention_heads} query heads" + _kv_heads(model)),
        ("context", unknown if native is None else f"{native:,} tokens"),
        ("KV cache", f"{format_bytes(row['bytes_per_token'])} a token in {row['kv_cache_dtype']}, "
                     f"the mean over {native or 32_768:,} tokens"),
        ("at contexts", ", ".join(held)),
        ("parameters", _parameters(model)),
        ("stored as", model.scheme.name),
    ]  # fmt: skip
    c = model.checkpoint
    if c.parameters is not None:
        facts.append(("published", f"{c.parameters:,} elements"))
    if c.size_bytes is not None:
        facts.append(
            ("published size", f"{format_bytes(c.size_bytes)} ({format_gib(c.size_bytes)})")
        )
    doubts = [*model.warnings, *model.assumptions]
    if model.weights_unknown is not None:
        doubts.append(f"the weights are not counted: {model.weights_unknown}")
    sources = list(profile.get("sources", ()))
    if c.source is not None:
        sources.append(f"checkpoint: {c.source}")
    document = {
        **row,
        "display_name": profile.get("display_name", model.name),
        "source": model.source,
        "aliases": list(profile.get("aliases", ())),
        "contexts": contexts,
        "parts": {} if model.weights_unknown else model.parameters_by_part(),
        "checkpoint": {
            "parameters": c.parameters, "size_bytes": c.size_bytes, "source": c.source,
        },
        "uncertain": doubts,
        "notes": profile.get("notes"),
        "sources": sources,
    }  # fmt: skip
    title = str(profile.get("display_name", model.name))
    if model.parameters is not None:
        title += f": {words.parameters(model.parameters)} parameters"
    uncertain = f"not certain: {'; '.join(doubts)}" if doubts else ""
    return Entry(title, facts, uncertain, sources, profile.get("notes"), document)


def _kv_heads(model: Model) -> str:
    heads = model.num_kv_heads
    return "" if heads is None else f", {heads} key-value heads"


def _parameters(model: Model) -> str:
    if model.parameters is None:
        return "not known"
    text = f"{model.parameters:,}"
    if model.active_parameters != model.parameters:
        text += f", {model.active_parameters:,} of them active for a token"
    return text


def _load(profile: dict[str, Any]) -> Model:
    from kvplan.sources import model_from_profile

    return model_from_profile(profile, f"bundled: {profile['name']}")


def _unknown(flag: str, text: object, known: set[str]) -> Exception:
    from kvplan.errors import InputError, nearest_names

    near = nearest_names(str(text), sorted(known)) or sorted(known)
    return InputError(f"{flag} {text!r} has no bundled model", hint=f"Try: {', '.join(near)}")
