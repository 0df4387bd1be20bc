"""Well-known facts to ask a model for, written for this book before any model was asked."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CONTEXTS", "COUNTRIES", "DISHES", "ENTITIES", "Entity"]

#: Sentences that end in a country, to read its state in different contexts.
CONTEXTS = (
    "The delegation arrived from {}",
    "She spent the whole summer in {}",
    "He wrote a long book about {}",
    "Most of the exports went to {}",
    "The museum shows maps of {}",
)

#: (country, capital, currency).
COUNTRIES = (
    ("France", "Paris", "Euro"),
    ("Germany", "Berlin", "Euro"),
    ("Italy", "Rome", "Euro"),
    ("Spain", "Madrid", "Euro"),
    ("Portugal", "Lisbon", "Euro"),
    ("Greece", "Athens", "Euro"),
    ("Austria", "Vienna", "Euro"),
    ("Ireland", "Dublin", "Euro"),
    ("Poland", "Warsaw", "Zloty"),
    ("Hungary", "Budapest", "Forint"),
    ("Sweden", "Stockholm", "Krona"),
    ("Norway", "Oslo", "Krone"),
    ("Denmark", "Copenhagen", "Krone"),
    ("Russia", "Moscow", "Ruble"),
    ("Turkey", "Ankara", "Lira"),
    ("Egypt", "Cairo", "Pound"),
    ("Kenya", "Nairobi", "Shilling"),
    ("Nigeria", "Abuja", "Naira"),
    ("Ethiopia", "Addis Ababa", "Birr"),
    ("Iran", "Tehran", "Rial"),
    ("Iraq", "Baghdad", "Dinar"),
    ("India", "New Delhi", "Rupee"),
    ("Nepal", "Kathmandu", "Rupee"),
    ("Thailand", "Bangkok", "Baht"),
    ("Vietnam", "Hanoi", "Dong"),
    ("China", "Beijing", "Yuan"),
    ("Japan", "Tokyo", "Yen"),
    ("Indonesia", "Jakarta", "Rupiah"),
    ("Australia", "Canberra", "Dollar"),
    ("Canada", "Ottawa", "Dollar"),
    ("Cuba", "Havana", "Peso"),
    ("Peru", "Lima", "Sol"),
    ("Chile", "Santiago", "Peso"),
    ("Argentina", "Buenos Aires", "Peso"),
)

#: (dish, country).
DISHES = (
    ("Pizza", "Italy"),
    ("Sushi", "Japan"),
    ("Paella", "Spain"),
    ("Moussaka", "Greece"),
    ("Goulash", "Hungary"),
    ("Blini", "Russia"),
    ("Bacalhau", "Portugal"),
    ("Pad Thai", "Thailand"),
    ("Ceviche", "Peru"),
    ("Pho", "Vietnam"),
    ("Peking duck", "China"),
    ("Ratatouille", "France"),
    ("Schnitzel", "Austria"),
    ("Pierogi", "Poland"),
    ("Kebab", "Turkey"),
    ("Poutine", "Canada"),
)


class Entity(NamedTuple):
    """A name, one line about it, and words any of which names its category."""

    name: str
    description: str
    category: tuple[str, ...]


_ROYAL = (
    "princess",
    "royal",
    "royalty",
    "monarch",
    "queen",
    "king",
    "emperor",
    "ruler",
    "conqueror",
    "prince",
)
_SCIENCE = ("scientist", "physicist", "chemist", "naturalist", "biologist", "mathematician", "astronomer")
_WRITER = ("writer", "author", "playwright", "poet", "novelist", "dramatist")
_ARTIST = ("painter", "artist", "sculptor", "inventor", "polymath")
_MUSIC = ("singer", "musician", "composer", "songwriter", "pianist", "rock", "pop")
_POLITICS = (
    "president",
    "politician",
    "statesman",
    "activist",
    "leader",
    "minister",
    "general",
    "revolutionary",
)
_SPORT = ("boxer", "boxing", "basketball", "footballer", "football", "soccer", "tennis", "player", "athlete")
_COUNTRY = ("country", "nation", "kingdom", "island", "state")
_FILM = ("film", "movie", "franchise", "novel", "book", "series", "fantasy", "fiction", "character")
_CITY = ("city", "capital", "metropolis")
_COMPANY = (
    "company",
    "corporation",
    "manufacturer",
    "automaker",
    "automobile",
    "automotive",
    "retailer",
    "chain",
)

#: Forty names. None ends in a word that states its own category ("... River", "... City").
ENTITIES = (
    Entity("Diana, Princess of Wales", "member of the British royal family", _ROYAL),
    Entity("Alexander the Great", "king of Macedonia and conqueror", _ROYAL),
    Entity("Catherine the Great", "empress of Russia", (*_ROYAL, "empress")),
    Entity("Napoleon Bonaparte", "French emperor and general", (*_ROYAL, "general", "military", "leader")),
    Entity("Albert Einstein", "German-born physicist", _SCIENCE),
    Entity("Isaac Newton", "English physicist and mathematician", _SCIENCE),
    Entity("Marie Curie", "Polish-French physicist and chemist", _SCIENCE),
    Entity("Charles Darwin", "English naturalist", _SCIENCE),
    Entity("Galileo Galilei", "Italian astronomer and physicist", _SCIENCE),
    Entity("William Shakespeare", "English playwright and poet", _WRITER),
    Entity("Charles Dickens", "English novelist", _WRITER),
    Entity("Jane Austen", "English novelist", _WRITER),
    Entity("Mark Twain", "American writer", _WRITER),
    Entity("Leonardo da Vinci", "Italian painter and inventor", (*_ARTIST, *_SCIENCE)),
    Entity("Vincent van Gogh", "Dutch painter", _ARTIST),
    Entity("Pablo Picasso", "Spanish painter", _ARTIST),
    Entity("Ludwig van Beethoven", "German composer", _MUSIC),
    Entity("Wolfgang Amadeus Mozart", "Austrian composer", _MUSIC),
    Entity("Michael Jackson", "American singer", _MUSIC),
    Entity("Elvis Presley", "American singer", _MUSIC),
    Entity("Bob Dylan", "American singer and songwriter", _MUSIC),
    Entity("Abraham Lincoln", "president of the United States", _POLITICS),
    Entity("Winston Churchill", "British prime minister", _POLITICS),
    Entity("Nelson Mandela", "president of South Africa", _POLITICS),
    Entity("Mahatma Gandhi", "leader of the Indian independence movement", _POLITICS),
    Entity("Muhammad Ali", "American boxer", _SPORT),
    Entity("Michael Jordan", "American basketball player", _SPORT),
    Entity("New Zealand", "country in the Pacific Ocean", _COUNTRY),
    Entity("Saudi Arabia", "country in the Middle East", _COUNTRY),
    Entity("South Africa", "country in Africa", _COUNTRY),
    Entity("Sri Lanka", "country in South Asia", _COUNTRY),
    Entity("Jurassic Park", "American science fiction film", _FILM),
    Entity("Star Wars", "American science fiction film series", _FILM),
    Entity("Harry Potter", "series of fantasy novels", _FILM),
    Entity("Los Angeles", "city in California", _CITY),
    Entity("San Francisco", "city in California", _CITY),
    Entity("Rio de Janeiro", "city in Brazil", _CITY),
    Entity("General Motors", "American automobile manufacturer", _COMPANY),
    Entity(
        "Burger King", "American chain of fast food restaurants", (*_COMPANY, "restaurant", "restaurants")
    ),
    Entity("Manchester United", "English football club", ("football", "club", "soccer", "team")),
)
