"""What came of a run, to be read by whoever was not there: one offline page, its Markdown twin, and the JSON of both.

record -> document (reading, document) -> sections (blocks) -> html with charts, or markdown

To add a section, add `sections/NAME.py` with `section(run) -> Section | None` and its name in `content.PARTS`.
"""
