"""Text: sentences, readers and writers, label schemes, templates and features of tokens."""

from jaxseq.text._extractors import DictExtractor as DictExtractor
from jaxseq.text._extractors import TemplateExtractor as TemplateExtractor
from jaxseq.text._extractors import extractor_from_state as extractor_from_state
from jaxseq.text._extractors import tokens_are_attributes as tokens_are_attributes
from jaxseq.text._features import FeatureExtractor as FeatureExtractor
from jaxseq.text._features import TokenFeatures as TokenFeatures
from jaxseq.text._features import token_rows as token_rows
from jaxseq.text._functions import WORD_TYPES as WORD_TYPES
from jaxseq.text._functions import WordRepresentation as WordRepresentation
from jaxseq.text._functions import find_representation as find_representation
from jaxseq.text._functions import short_shape as short_shape
from jaxseq.text._functions import word_type as word_type
from jaxseq.text._functions import word_types as word_types
from jaxseq.text._readers import CONLLU as CONLLU
from jaxseq.text._readers import Block as Block
from jaxseq.text._readers import NamedFile as NamedFile
from jaxseq.text._readers import decode_lines as decode_lines
from jaxseq.text._readers import iter_blocks as iter_blocks
from jaxseq.text._readers import iter_conll as iter_conll
from jaxseq.text._readers import iter_lines as iter_lines
from jaxseq.text._readers import iter_plain as iter_plain
from jaxseq.text._readers import open_to_replace as open_to_replace
from jaxseq.text._readers import read_conll as read_conll
from jaxseq.text._readers import read_plain as read_plain
from jaxseq.text._readers import split_cells as split_cells
from jaxseq.text._readers import text_encoding as text_encoding
from jaxseq.text._readers import tokenize as tokenize
from jaxseq.text._readers import write_conll as write_conll
from jaxseq.text._schemes import SCHEMES as SCHEMES
from jaxseq.text._schemes import IllegalTagError as IllegalTagError
from jaxseq.text._schemes import LegalTransitions as LegalTransitions
from jaxseq.text._schemes import convert_tags as convert_tags
from jaxseq.text._schemes import corpus_scheme as corpus_scheme
from jaxseq.text._schemes import detect_scheme as detect_scheme
from jaxseq.text._schemes import legal_transitions as legal_transitions
from jaxseq.text._schemes import parse_tag as parse_tag
from jaxseq.text._schemes import tag_spans as tag_spans
from jaxseq.text._sentence import Sentence as Sentence
from jaxseq.text._templates import CONLL2000 as CONLL2000
from jaxseq.text._templates import CONLL2003 as CONLL2003
from jaxseq.text._templates import GENE_MENTION as GENE_MENTION
from jaxseq.text._templates import GENERAL as GENERAL
from jaxseq.text._templates import TOKEN_IDENTITY as TOKEN_IDENTITY
from jaxseq.text._templates import Template as Template
from jaxseq.text._templates import Templates as Templates
from jaxseq.text._templates import general_templates as general_templates
from jaxseq.text._templates import parse_template as parse_template
from jaxseq.text._templates import read_templates as read_templates
from jaxseq.text._vocabulary import ONLY_COLUMN as ONLY_COLUMN
from jaxseq.text._vocabulary import Column as Column
from jaxseq.text._vocabulary import SharedCorpus as SharedCorpus
from jaxseq.text._vocabulary import StringTable as StringTable
from jaxseq.text._vocabulary import read_corpus as read_corpus
from jaxseq.text._vocabulary import sum_counts as sum_counts

__all__ = [
    "CONLL2000",
    "CONLL2003",
    "CONLLU",
    "GENERAL",
    "GENE_MENTION",
    "TOKEN_IDENTITY",
    "WORD_TYPES",
    "DictExtractor",
    "FeatureExtractor",
    "IllegalTagError",
    "LegalTransitions",
    "Sentence",
    "SharedCorpus",
    "Template",
    "TemplateExtractor",
    "Templates",
    "TokenFeatures",
    "convert_tags",
    "detect_scheme",
    "extractor_from_state",
    "general_templates",
    "iter_conll",
    "iter_plain",
    "legal_transitions",
    "parse_template",
    "read_conll",
    "read_plain",
    "read_templates",
    "tag_spans",
    "token_rows",
    "tokenize",
    "word_type",
    "word_types",
    "write_conll",
]
"""What users call; the other names are for the packages of jaxseq itself."""
