"""Translates a kernel whose headers have one fault planted: plant.py FAULT ROOT FOLDER TRANSLATOR OPTIONS...

The changed header is written to FOLDER, where the compiler finds it before the right one. `none` plants nothing."""
import pathlib
import subprocess
import sys

RINGS, WALK = "runtime/engine/device/ring_ends.cuh", "runtime/engine/device/walk.cuh"
RELAXED = 'asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"({}), "l"(++end.next) : "memory");'
# The header, what stands there, and what takes its place.
FAULTS = {
    "message_posted_relaxed": (RINGS, "store_release_system(&line.sequence, ++end.next);", RELAXED.format("&line.sequence")),
    "message_seen_relaxed": (RINGS, "load_acquire_system(&line->sequence)", "load_relaxed_system(&line->sequence)"),
    "room_given_back_relaxed": (RINGS, "store_release_system(end.released, ++end.next);", RELAXED.format("end.released")),
    "room_seen_relaxed": (RINGS, "load_acquire_system(end.released)", "load_relaxed_system(end.released)"),
    "posted_without_barrier": (WALK, "combine();\n    __syncthreads();\n    if (shared_.load.moves) post", "combine();\n    if (shared_.load.moves) post"),
    "released_before_it_is_read": (
        WALK,
        "combine();\n    __syncthreads();\n    if (shared_.load.moves) post_and_release();",
        "if (shared_.load.moves) post_and_release();\n    __syncthreads();\n    combine();"),
}


def main(fault, root, folder, translator, *options):
    flags = []
    if fault != "none":
        path, right, wrong = FAULTS[fault]
        text = (pathlib.Path(root) / path).read_text()
        if text.count(right) != 1:
            sys.exit(f"{path} has not exactly one place for the fault {fault}: {right}")
        planted = pathlib.Path(folder) / path
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_text(text.replace(right, wrong))
        flags = [f"--flag=-I{folder}"]
    return subprocess.run([sys.executable, translator, *flags, *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
