"""The report: one page that shows what a model learnt, as a file or live. No torch here.

`cs.report(run, "page.html")` is the function that diagnoses and evaluates a run first.
"""

from chiaroscuro.report.document import document
from chiaroscuro.report.page import page, report
from chiaroscuro.report.server import view
from chiaroscuro.report.subject import Subject, diagnosis_of, subjects

__all__ = ["Subject", "diagnosis_of", "document", "page", "report", "subjects", "view"]
