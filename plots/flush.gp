# Share of flushed gradient values by layer and step. Blocks of the data, one per cell: row, from step, to
# step, percent; -1 where every value was 0, inf or NaN.
set multiplot
set key off
unset grid
set palette defined (0 '#fee8a8', 1 '#fec44f', 2 '#ec7014', 3 '#a03a04', 4 '#3d1300')
set logscale cb
set cbrange [0.01:100]
unset ytics
set colorbox horizontal user origin screen px(width - 344), screen py(34) \
    size screen px(300), screen 1 - py(9)
set cbtics ('0.01 %%' 0.01, '0.1 %%' 0.1, '1 %%' 1, '10 %%' 10, '100 %%' 100) scale 0.4 offset 0,0.5 \
    font tiny_font
set lmargin at screen px(160)
set rmargin at screen px(width - 24)
set xrange [0:steps]
set label 1 'Flushed gradient values: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 2 'share of the non-zero values that the cast to half turns into 0, by layer and step' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
set label 3 'grey: none; blue: not probed; pink: every value was 0, inf or NaN' \
    at screen px(24), screen py(60) noenhanced font small_font textcolor rgb soft
top = 76
do for [i = 1:panels] {
    top = top + title_height
    set tmargin at screen py(top - 12)
    set bmargin at screen py(top - 12 + layers[i] * row_height)
    set yrange [layers[i] + 0.5:0.5]
    every = layers[i] > 80 ? 4 : layers[i] > 60 ? 2 : 1
    unset for [k = 100:300] label k
    if (sentence[i] eq '') {
        do for [k = 1:layers[i]:every] {
            set label 100+k layer[first_layer[i] + k] at graph 0, first k right offset -0.8,0 noenhanced \
                font tiny_font textcolor rgb ink
        }
        set object 1 rectangle from first 0, graph 0 to first trained[i], graph 1 behind \
            fillcolor rgb '#cfe6f7' fillstyle solid noborder
    } else {
        unset object 1
    }
    set format x (i == panels ? '%g' : '')
    set label 9 (i == panels ? 'step' : '') at graph 0.5, screen py(height - 16) center noenhanced \
        font small_font textcolor rgb soft
    set object 90 rectangle center screen px(165), screen py(top - 24) size screen px(9), screen 1 - py(9) \
        fillcolor rgb level(color_of[i]) fillstyle solid noborder
    set label 10 title[i] at screen px(176), screen py(top - 24) noenhanced font panel_font textcolor rgb ink
    set label 11 note[i] at graph 1, screen py(top - 24) right noenhanced font small_font textcolor rgb soft
    set label 12 sentence[i] at graph 0.01, graph 0.5 left noenhanced font small_font textcolor rgb soft
    plot data index i-1 using ($4 < 0 ? 0.5*($2+$3) : NaN):1:(0.5*($3-$2)):(0.46) with boxxyerror \
        fillcolor rgb '#f2c9dc' fillstyle solid 1 noborder, \
         data index i-1 using ($4 < 0 ? NaN : 0.5*($2+$3)):1:(0.5*($3-$2)):(0.46) with boxxyerror \
        fillcolor rgb '#dde3e8' fillstyle solid 1 noborder, \
         data index i-1 using ($4 > 0 ? 0.5*($2+$3) : NaN):1:(0.5*($3-$2)):(0.46):($4 < 0.01 ? 0.01 : $4) \
         with boxxyerror fillcolor palette fillstyle solid 1 noborder
    unset label 1; unset label 2; unset label 3; unset colorbox
    top = top + layers[i] * row_height
}
unset multiplot
