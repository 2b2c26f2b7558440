"""The paths of health."""

from fastapi import APIRouter

router = APIRouter()
