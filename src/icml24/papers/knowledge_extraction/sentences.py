r"""The sentences of the book's own `bioS`: ten forms an attribute, and one question each.

``{s}`` is the subject, ``{v}`` the value. The subject comes first in every form, so the name
precedes every value even when the order of sentences is shuffled. The forms were written for
this book; the first author's generator, released in 2025, has about fifty an attribute.
"""

from __future__ import annotations

__all__ = ["ATTRIBUTES", "QUESTIONS", "TEMPLATES"]

#: The six attributes in the order of an unshuffled biography.
ATTRIBUTES: tuple[str, ...] = (
    "birth_date",
    "birth_city",
    "university",
    "major",
    "company",
    "company_city",
)

#: Sentence forms by attribute.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "birth_date": (
        "{s} came into the world on {v}.",
        "{s} celebrates a birthday dating from {v}.",
        "{s} has the birth date {v}.",
        "{s} entered life on {v}.",
        "{s} arrived as a newborn on {v}.",
        "{s} began an existence on {v}.",
        "{s} took a first breath on {v}.",
        "{s} is registered as born {v}.",
        "{s} holds a passport saying {v}.",
        "{s} has been alive since {v}.",
    ),
    "birth_city": (
        "{s} hails from {v}.",
        "{s} spent a childhood in {v}.",
        "{s} is a native of {v}.",
        "{s} lived first in {v}.",
        "{s} made the first steps in {v}.",
        "{s} names {v} as birthplace.",
        "{s} was a baby in {v}.",
        "{s} went to kindergarten in {v}.",
        "{s} was christened in {v}.",
        "{s} left the cradle in {v}.",
    ),
    "university": (
        "{s} graduated from {v}.",
        "{s} received higher education at {v}.",
        "{s} was a student at {v}.",
        "{s} owns a diploma of {v}.",
        "{s} passed all exams of {v}.",
        "{s} lived on the campus of {v}.",
        "{s} enrolled young at {v}.",
        "{s} listened to professors at {v}.",
        "{s} belongs to the alumni of {v}.",
        "{s} went to college at {v}.",
    ),
    "major": (
        "{s} studied the subject {v}.",
        "{s} chose to major in {v}.",
        "{s} defended a thesis on {v}.",
        "{s} is an expert in {v}.",
        "{s} holds a degree in {v}.",
        "{s} took courses on {v}.",
        "{s} learned everything about {v}.",
        "{s} picked {v} as main field.",
        "{s} was trained in {v}.",
        "{s} concentrated on {v}.",
    ),
    "company": (
        "{s} works for {v}.",
        "{s} found employment at {v}.",
        "{s} is paid by {v}.",
        "{s} made a career with {v}.",
        "{s} signed a contract with {v}.",
        "{s} serves the firm {v}.",
        "{s} became an employee of {v}.",
        "{s} joined the staff of {v}.",
        "{s} got a job at {v}.",
        "{s} wears the badge of {v}.",
    ),
    "company_city": (
        "{s} works in {v}.",
        "{s} commutes daily to {v}.",
        "{s} has an office in {v}.",
        "{s} earns a living in {v}.",
        "{s} keeps a desk in {v}.",
        "{s} spends working days in {v}.",
        "{s} was employed in {v}.",
        "{s} goes to meetings in {v}.",
        "{s} does business in {v}.",
        "{s} has lunch breaks in {v}.",
    ),
}

#: One question an attribute; the sequence is the question, ``Answer:`` and the value.
QUESTIONS: dict[str, str] = {
    "birth_date": "What is the birth date of {s}?",
    "birth_city": "What is the birth city of {s}?",
    "university": "Which university did {s} attend?",
    "major": "What is the major of {s}?",
    "company": "Which company does {s} work for?",
    "company_city": "Where does {s} work?",
}
