"""The paths of templates."""

from fastapi import APIRouter

router = APIRouter()
