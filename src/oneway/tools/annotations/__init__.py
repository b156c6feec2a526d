"""Predictions as annotation tools import them: the way back to where labels are drawn."""

from oneway.tools.annotations.export import FORMATS, AnnotationSettings, Export
