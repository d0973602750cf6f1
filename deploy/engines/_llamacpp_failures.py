"""llama.cpp's known failures, as a table for `_table.rows`; from logs of the builds of 2026, most of them made.

NAME  regular expression of the line        NAME~: a consequence of a failure elsewhere; any cause beats it
    what it means
    -> what to do

With a draft, llama.cpp says on a healthy start "E llama_init_from_model: failed to initialize the context: eagle3
requires ctx_other" and "W ... failed to measure the memory of the extra model": neither may be in the table.
"""

FAILURES = r"""
cut-short  data is not within the file bounds|model is corrupted or incomplete
    the GGUF file is cut short
    -> copy it again and compare its digest
no-gguf  invalid magic characters
    the file is no GGUF file
    -> convert the checkpoint to GGUF
no-file  failed to open GGUF file|llama_server: --model(?:-draft)?: there is no file
    the file does not exist or cannot be read
    -> see `model.path` and `draft.path`
architecture  unknown model architecture: '\S+'
    this build of llama.cpp does not know the model's architecture
    -> upgrade llama.cpp
no-layers  draft model is not eagle3 \(expected 3 extract layers, got \d+\)
    the draft is no EAGLE-3 draft; llama.cpp serves on without speculation
    -> give an EAGLE-3 draft, or speculative.algorithm=STANDALONE for a small model as draft
port  couldn't bind HTTP server socket
    the port is taken
    -> end what holds the port, or another one: port=30001
no-memory  (?:failed to allocate|unable to allocate) \S*\s?buffer|cudaMalloc failed: out of memory|bad_alloc
    there is not enough memory
    -> args.ctx-size=8192, args.parallel=1 (slots), or fewer layers on the GPU: args.n-gpu-layers=20
flag  llama_server: (?:there is no flag|.* takes |.* needs a value|there is no --spec-type)|error: invalid argument:
    llama.cpp does not take a flag of the profile
    -> correct it in `args`
folder  llama_server: .* a folder must hold exactly one \.gguf file
    it is not clear which GGUF file of the folder is meant
    -> name the file itself
no-package  llama_server: .* cannot import xllamacpp
    this interpreter has no xllamacpp
    -> install xllamacpp there, or set engine.python or engine.environment
no-context~  failed to create_?\s?context with model
    the model cannot serve on its own: there is too little memory, or an EAGLE-3 draft was given as the model
    -> see `model.path`
no-draft~  failed to load draft model
    the draft could not be loaded
    -> check it with another build of llama.cpp
no-model~  failed to load model,? '|exiting due to model loading error
    the model could not be loaded
    -> check it with another build of llama.cpp
"""
