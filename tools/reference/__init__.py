"""The reference pages of the documentation, which are generated from the package.

`mkdocs build` adds them to the site (tools/mkdocs_hooks.py). To read them as files:

    python -m tools.reference FOLDER
"""

from tools.reference import api, commands, environment, json_documents

PAGES = {  # each page of docs/reference/, and the function that generates its text
    "commands": commands.generate,
    "api": api.generate,
    "json": json_documents.generate,
    "environment": environment.generate,
}
