"""The command ``xyd``: verbs and flags.

A verb imports its module only when it runs, so help and every error in a configuration come at once, without torch.
Exit codes: 0 done; 1 a defect of xyd, or some lines failed (named); 2 the user's to mend; 130 or 143 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from xyd import __version__
from xyd.errors import CheckpointError, ConfigError, DataError, XydError

FAILED_LINES, BROKEN_PIPE, INTERRUPTED = 1, 141, 130

_CORPUS_KINDS = ("tsv", "csv", "json", "jsonl", "parquet", "arrow", "tmx", "xliff", "po", "xml")  # keys of data.corpora
_CHECKPOINTS = ("best", "averaged", "last")
# What a person can mend about a file system, as opposed to what points to a defect of ours.
_MENDABLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG,
    errno.ENOENT, errno.EEXIST, errno.EFBIG,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code. The one place that turns an ``XydError`` into a message."""
    if arguments is None:
        _name_files_in_utf8()
    _speak_utf8()
    _stop_on_sigterm()
    _let_threads_sleep()
    options = _parser().parse_args(arguments)
    try:
        code: int = options.verb(options)
        sys.stdout.flush()
        return code
    except XydError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nxyd: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader at the other end has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        if error.errno not in _MENDABLE:
            return _defect()
        print(f"xyd: {error.filename or 'writing'}: {error.strerror}", file=sys.stderr)
        return XydError.exit_code
    except Exception:  # noqa: BLE001  (said in full: traceback and exit code 1)
        return _defect()


def _defect() -> int:
    traceback.print_exc()
    print(f"xyd {__version__}: this is a defect of xyd; please report it with the lines above", file=sys.stderr)
    return 1


def _name_files_in_utf8() -> None:
    """Where Python would take file names for ASCII, as in a plain C locale, it is started again in its UTF-8 mode.

    Names come from YAML too, so mending the arguments alone would not do.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, sys.orig_argv)


def _speak_utf8() -> None:
    """Texts of any language go in and out whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _let_threads_sleep() -> None:
    """Before torch is loaded: OpenMP's threads wait for each other asleep after a short spin.

    Spinning, as GNU OpenMP does by default, makes small operations twenty times slower as soon as another program
    takes one of the cores (figures in LOG.md). What the user has set stays.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"


def _stop_on_sigterm() -> None:
    """Leave by an exception, so that files written aside are removed; training sets its own, gentler handler."""

    def stop(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


# ── verbs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _load_config(options: argparse.Namespace) -> Any:
    from xyd import config

    overrides = list(options.set)
    home = Path(options.config).resolve().parent
    if Path(options.config).name == "config.yaml" and (home / "manifest.json").is_file():
        # The configuration inside a run directory means that directory, wherever it has been moved to.
        overrides = [f"run.dir={home.parent}", f"run.name={home.name}", *overrides]
    loaded = config.load(options.config, overrides)
    if os.environ.get("RANK", "0") == "0":
        for caution in config.cautions(loaded):
            print(f"note: {caution}", file=sys.stderr)
    return loaded


def _train(options: argparse.Namespace) -> int:
    config = _load_config(options)
    runs = _folds(config, options.fold)
    flags = {"fresh": options.fresh, "reset_schedule": options.reset_schedule, "strict": options.strict}
    if len(runs) > 1:
        from xyd.kfold import train_folds

        return train_folds(config, runs, _warn, **flags)
    from xyd.train import train

    return train(runs[0], **flags)


def _prepare(options: argparse.Namespace) -> int:
    runs = _folds(_load_config(options), options.fold)
    from xyd.resume import explain, prepare

    for config in runs:
        prepare(config, print if options.explain is None else _warn, options.strict)
        if options.explain is not None:
            print(explain(config, options.explain))
    return 0


def _plan(options: argparse.Namespace) -> int:
    config = _load_config(options)
    from xyd import planner

    found = planner.make_plan(config, options.measure)
    print(planner.as_json(found) if options.json else planner.report(found))
    return 0


def _check(options: argparse.Namespace) -> int:
    config = _load_config(options)
    from xyd.check import check

    return check(config, print)


def _init(options: argparse.Namespace) -> int:
    from xyd.init import Request, write_config

    given = {kind: path for kind in _CORPUS_KINDS if (path := getattr(options, kind)) is not None}
    if len(given) > 1:
        raise ConfigError(f"xyd init: one corpus at a time, got {' and '.join(f'--{kind}' for kind in given)}")
    kind, path = next(iter(given.items()), (None, None))
    request = Request(
        options.out, options.src, options.tgt, kind, path, options.languages, options.directions == "forward",
        options.name, options.force,
    )  # fmt: skip
    write_config(request, _warn)
    return 0


def _folds(config: Any, fold: int | None) -> list[Any]:
    """The configurations of the runs that a configuration asks for: of the fold `--fold`, or of all."""
    from xyd.config import with_fold

    split = config.data.split
    if fold is not None:
        return [with_fold(config, fold)]
    if split.kfold is None or split.fold is not None:
        return [config]
    return [with_fold(config, number) for number in range(1, split.kfold + 1)]


def _inspect(options: argparse.Namespace) -> int:
    config = _load_config(options)
    from xyd.corpus.inspection import inspect
    from xyd.files import RunDir, atomic_write
    from xyd.health.page import page
    from xyd.health.table import table

    found = inspect(config)
    print(table(found["corpora"], found["files"]))
    run = RunDir(Path(config.run.dir) / config.run.name)
    as_json: Path = options.json or run.health_path
    as_page: Path = options.html or run.health_path.with_suffix(".html")
    atomic_write(as_json, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    atomic_write(as_page, page(found["corpora"], f"Health of the data of {config.run.name}", found["files"]))
    print(f"\nwritten: {as_json}, {as_page} (with examples)")
    return 0


def _translate(options: argparse.Namespace) -> int:
    if options.n_best > 1 and options.format != "jsonl":
        raise ConfigError(f"--n-best {options.n_best} needs --format jsonl: text has one translation a line")
    if options.beam_size is not None and options.n_best > options.beam_size:
        raise ConfigError(f"--n-best {options.n_best} is above --beam-size {options.beam_size}")
    run = _run_dir(options.run)
    if options.input is not None and not options.input.exists():
        raise DataError(f"--input {options.input}: no such file")
    if options.input is not None and options.input.is_dir():
        raise DataError(f"--input {options.input}: this is a folder; give a file")
    if options.output is not None and (options.output.is_dir() or not options.output.absolute().parent.is_dir()):
        raise DataError(f"--output {options.output}: give the name of a file in a folder that exists")
    from xyd.lines import LineOptions, check_options, translate_file, translate_lines
    from xyd.translate import Translator

    translator = Translator.load(run, options.checkpoint, options.device)
    line_options = LineOptions(
        options.tgt_lang, options.src_lang, options.beam_size, options.n_best, options.length_penalty, options.format
    )
    if options.input is None and options.output is None and options.format == "text" and sys.stdin.isatty():
        return _prompt(translator, line_options)
    check_options(translator, line_options)
    source = sys.stdin.buffer if options.input is None else options.input.open("rb")
    with source:
        if options.output is None:
            failed = translate_lines(translator, source, sys.stdout.buffer, line_options, _warn)
        else:
            failed = translate_file(translator, source, options.output, line_options, _warn)
    if failed:
        _warn(f"xyd: {failed} {'lines' if failed > 1 else 'line'} failed")
    return FAILED_LINES if failed else 0


def _prompt(translator: Any, line_options: Any) -> int:
    import contextlib

    from xyd.prompt import Prompt

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history for input())
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    Prompt(translator, line_options, print).run(input)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    if (options.src is None) != (options.ref is None):
        raise ConfigError("--src and --ref go together: a file of source lines and one of reference translations")
    if options.src is None and (options.src_lang or options.tgt_lang):
        raise ConfigError("--src-lang and --tgt-lang name the languages of --src and --ref, which are not given")
    if options.src is not None and options.split is not None:
        raise ConfigError("give either --split or --src with --ref")
    run = _run_dir(options.run)
    common = {"checkpoint": options.checkpoint, "device": options.device, "beam_size": options.beam_size}
    if options.src is not None:
        languages = _languages(run, options.src_lang, options.tgt_lang)
        from xyd.evaluate import evaluate_files

        report = evaluate_files(run, options.src, options.ref, *languages, **common)
    else:
        from xyd.evaluate import evaluate_run

        report = evaluate_run(run, options.split or "test", **common)
    print(json.dumps(report.as_dict(), ensure_ascii=False, indent=2) if options.json else report.table())
    return 0


def _score(options: argparse.Namespace) -> int:
    run = _run_dir(options.run)
    languages = _languages(run, options.src_lang, options.tgt_lang)
    from xyd.evaluate import score_files

    scores = score_files(
        run, options.src, options.tgt, *languages, checkpoint=options.checkpoint, device=options.device, say=_warn
    )
    for nll_sum, num_tokens in scores:
        print(f"{nll_sum:.6f}\t{num_tokens}")
    return FAILED_LINES if any(num_tokens == 0 for _, num_tokens in scores) else 0


def _config_show(options: argparse.Namespace) -> int:
    config = _load_config(options)
    from xyd.config import dump

    print(dump(config), end="")
    return 0


def _config_explain(options: argparse.Namespace) -> int:
    from xyd.config import explain

    print(explain(options.key))
    return 0


def _tokenizer_report(options: argparse.Namespace) -> int:
    from xyd.files import RunDir, atomic_write

    if options.subject.is_dir():
        from xyd import config

        saved = config.load(_run_dir(options.subject) / "config.yaml", options.set)
        from xyd.tokenizer_report import report_run, table

        report = report_run(RunDir(options.subject), saved.model.max_length)
    else:
        options.config = options.subject
        loaded = _load_config(options)
        from xyd.tokenizer_report import report_config, table

        report = report_config(loaded, _warn)
    if options.json is not None:
        atomic_write(options.json, report.as_json())
    print(table(report))
    return 0


def _warn(message: str) -> None:
    print(message, file=sys.stderr)


def _run_dir(run: Path) -> Path:
    """The run directory, seen to be one before torch is loaded for it."""
    if not (run / "config.yaml").is_file():
        there = "it has no config.yaml" if run.is_dir() else "no such folder"
        raise CheckpointError(f"{run}: not a run directory ({there}); `xyd train` makes one in <run.dir>/<run.name>")
    return run


def _languages(run: Path, src_lang: str | None, tgt_lang: str | None) -> tuple[str, str]:
    """The one direction of the run that fits what was given."""
    from xyd import config

    directions = config.directions(config.load(run / "config.yaml"))
    fitting = [(src, tgt) for src, tgt in directions if src_lang in (None, src) and tgt_lang in (None, tgt)]
    if len(fitting) == 1:
        return fitting[0]
    choices = ", ".join(f"{src}-{tgt}" for src, tgt in directions)
    what = "say which languages with --src-lang and --tgt-lang" if fitting else "this run was not trained for that"
    raise ConfigError(f"{what}; its directions are {choices}")


# ── flags ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="xyd",
        description="Train small translation models from your own parallel text, and use them.",
        epilog="Each verb explains itself: xyd train --help. The keys of the YAML: xyd config explain.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xyd {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    train = _verb(verbs, "train", _train, "train a model from a YAML, or go on where it was stopped")
    _config_flags(train)
    train.add_argument(
        "--fresh", action="store_true", help="start anew; the old run is moved aside, nothing is deleted"
    )
    train.add_argument(
        "--reset-schedule", action="store_true", help="go on with the weights under a changed schedule or optimiser"
    )

    prepare = _verb(verbs, "prepare", _prepare, "read, clean, split and tokenise the data only")
    _config_flags(prepare)
    prepare.add_argument(
        "--explain", metavar="PLACE", help="say what became of a line: train.en:17, or 17 for that line of every corpus"
    )
    for verb in (train, prepare):
        verb.add_argument(
            "--strict", action="store_true", help="refuse corpora that overlap with your own valid and test files"
        )
        verb.add_argument("--fold", type=_count, metavar="N", help="only this fold of data.split.kfold")

    init = _verb(verbs, "init", _init, "write a config fitted to a corpus: its size, its languages")
    _corpus_flags(init)

    check = _verb(verbs, "check", _check, "try everything that can fail, in under two minutes, before training")
    _config_flags(check)

    plan = _verb(verbs, "plan", _plan, "forecast parameters, memory, time and disk of a run; trains nothing")
    _config_flags(plan)
    plan.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time some real steps, half a minute at most; without it time is by rule (default: --measure)",
    )
    plan.add_argument("--json", action="store_true", help="print JSON instead of lines")

    inspect = _verb(verbs, "inspect", _inspect, "what is wrong with the data: counts, first lines, examples")
    _config_flags(inspect)
    inspect.add_argument("--json", type=Path, metavar="FILE", help="(default: health.json in the run directory)")
    inspect.add_argument("--html", type=Path, metavar="FILE", help="one page (default: health.html beside it)")

    translate = _verb(verbs, "translate", _translate, "translate lines; a prompt at a terminal")
    _run_flags(translate)
    translate.add_argument("--input", type=Path, metavar="FILE", help="UTF-8 text, a line each (default: stdin)")
    translate.add_argument("--output", type=Path, metavar="FILE", help="written when whole (default: stdout)")
    translate.add_argument("--tgt-lang", metavar="L", help="target language; needed when the run has several")
    translate.add_argument("--src-lang", metavar="L", help="source language; only checked, the model finds it itself")
    translate.add_argument("--beam-size", type=_count, metavar="N", help="hypotheses kept per sentence; 1 = greedy")
    translate.add_argument("--n-best", type=_count, default=1, metavar="N", help="translations a line; needs jsonl")
    translate.add_argument("--length-penalty", type=float, metavar="A", help="alpha; higher favours longer output")
    translate.add_argument("--format", choices=("text", "jsonl"), default="text", help="(default: text)")

    evaluate = _verb(verbs, "evaluate", _evaluate, "NLL, perplexity, BLEU and chrF, per direction")
    _run_flags(evaluate)
    evaluate.add_argument("--split", choices=("test", "valid"), help="of the run's own data (default: test)")
    evaluate.add_argument("--src", type=Path, metavar="FILE", help="source lines, with --ref instead of --split")
    evaluate.add_argument("--ref", type=Path, metavar="FILE", help="reference translations of --src")
    evaluate.add_argument("--src-lang", metavar="L", help="language of --src")
    evaluate.add_argument("--tgt-lang", metavar="L", help="language of --ref")
    evaluate.add_argument("--beam-size", type=_count, metavar="N", help="hypotheses kept per sentence")
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of a table")

    score = _verb(verbs, "score", _score, "NLL of given translations: nll_sum TAB num_tokens, a line each")
    _run_flags(score)
    score.add_argument("--src", type=Path, required=True, metavar="FILE", help="source lines")
    score.add_argument("--tgt", type=Path, required=True, metavar="FILE", help="target lines")
    score.add_argument("--src-lang", metavar="L", help="language of --src")
    score.add_argument("--tgt-lang", metavar="L", help="language of --tgt")

    tokenizer = verbs.add_parser("tokenizer", help="what a tokenizer does to its corpus", allow_abbrev=False)
    about_report = "lengths, characters without a piece, use of the vocabulary, round trips"
    report = _verb(tokenizer.add_subparsers(metavar="VERB", required=True), "report", _tokenizer_report, about_report)
    report.add_argument("subject", type=Path, metavar="RUN|CONFIG", help="a run directory, or a YAML file")
    _set_flag(report)
    report.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")

    config = verbs.add_parser("config", help="show a resolved configuration, or explain its keys", allow_abbrev=False)
    config_verbs = config.add_subparsers(metavar="VERB", required=True)
    _config_flags(_verb(config_verbs, "show", _config_show, "the whole configuration with every default"))
    explain = _verb(config_verbs, "explain", _config_explain, "what a key or a section means")
    explain.add_argument("key", nargs="?", default="", metavar="KEY", help="train.warmup_steps, train, or nothing")
    return parser


def _verb(verbs: Any, name: str, function: Any, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=about, allow_abbrev=False)
    parser.set_defaults(verb=function)
    return parser


def _config_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="the YAML file")
    _set_flag(parser)


def _set_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key, train.max_steps=500; repeatable",
    )


def _corpus_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--src", type=Path, metavar="FILE", help="a.zh: text of one language, a line each")
    parser.add_argument("--tgt", type=Path, metavar="FILE", help="a.en: the same lines in the other language")
    for kind in _CORPUS_KINDS:
        parser.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"one {kind} file that holds both languages")
    parser.add_argument("--languages", metavar="L,L", help="zh,en: the languages; guessed from .zh and .en where given")
    parser.add_argument(
        "--directions", choices=("both", "forward"), default="both", help="forward = from --src to --tgt only"
    )
    parser.add_argument("--name", metavar="NAME", help="of the run (default: its languages, zh-en)")
    parser.add_argument("--out", type=Path, default=Path("config.yaml"), metavar="YAML", help="(default: config.yaml)")
    parser.add_argument("--force", action="store_true", help="replace the file that --out names")


def _run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory, runs/demo")
    parser.add_argument(
        "--checkpoint",
        choices=_CHECKPOINTS,
        help="(default: the one that training chose at its end, else best, else last)",
    )
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:N (default: auto)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)
